#pragma once

/// The names of keys.

#include <cstdint>
#include <string>
#include <string_view>

namespace remora::volume {

/// The keys of one cluster. A value.
class Keys {
 public:
  /// `cluster`: its name, which is not checked.
  explicit Keys(std::string_view cluster);

  /// The random number that an operator changes when the store is restored from a snapshot.
  [[nodiscard]] std::string generation() const { return root_ + "generation"; }
  /// The prefix of the keys of all servers.
  [[nodiscard]] std::string servers() const { return root_ + "servers/"; }
  /// The key of a server's record. `name` is not checked.
  [[nodiscard]] std::string server(std::string_view name) const;
  /// The prefix of the keys of servers that are drained: no volume gets new members there.
  [[nodiscard]] std::string draining() const { return root_ + "draining/"; }
  /// The key that says so of one server.
  [[nodiscard]] std::string draining(std::string_view server) const;
  /// The prefix of the keys of all volumes.
  [[nodiscard]] std::string volumes() const { return root_ + "volumes/"; }
  /// The key of a volume's record.
  [[nodiscard]] std::string volume(std::string_view name) const;
  /// The prefix of the keys of a volume's groups.
  [[nodiscard]] std::string groups(std::string_view volume) const;
  /// The key of a group's record. Keys sort by `index`.
  [[nodiscard]] std::string group(std::string_view volume, std::uint64_t index) const;
  /// The key of the claimed writer, with its lease.
  [[nodiscard]] std::string writer(std::string_view volume) const;

 private:
  std::string root_;  ///< "/remora/CLUSTER/"
};

}  // namespace remora::volume
