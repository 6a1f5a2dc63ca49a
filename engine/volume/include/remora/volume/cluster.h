#pragma once

/// A cluster: its servers, and the records of its volumes. What is read here is a snapshot; a
/// change compares what was read with what is there.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>
#include <remora/volume/keys.h>
#include <remora/volume/metadata_store.h>
#include <remora/volume/open_store.h>
#include <remora/volume/records.h>
#include <remora/volume/uri.h>

namespace remora::volume {

/// A volume with all its groups, as one read found them.
struct VolumeLayout {
  VolumeRecord volume{};
  std::string volume_value{};               ///< the JSON text: for Compare
  std::vector<GroupRecord> groups{};        ///< [i].index == i, volume.group_count() of them
  std::vector<std::string> group_values{};  ///< the JSON texts
  /// Groups beyond group_count(), which an interrupted resize left.
  std::vector<GroupRecord> extra_groups{};
  std::vector<ServerRecord> servers{};  ///< registered at the moment, sorted by name
  std::vector<std::string> draining{};  ///< names of servers that get no new members
  /// The identity of the claimed writer that is alive; empty: there is none.
  std::string live_writer{};
  std::uint64_t generation = 0;  ///< of the cluster
  std::uint64_t revision = 0;    ///< of the store, at the last change of the volume or of a group

  [[nodiscard]] const ServerRecord* find_server(std::string_view name) const noexcept;
  /// The servers on which the volume may have new members: registered, and not draining.
  [[nodiscard]] std::vector<ServerRecord> servers_for_members() const;
  /// Where to connect for `member`: the server's present addresses, else those of the member.
  [[nodiscard]] const std::vector<std::string>& addresses_of(const Member& member) const noexcept;
};

/// Copyable handle. Thread-safe. Each function blocks, at most for the time limit of the cluster in
/// each request to its store. Errors: those of MetadataStore, and of records (records.h).
class Cluster {
 public:
  static constexpr std::chrono::nanoseconds kLimit = std::chrono::seconds{5};

  /// Makes no request yet. Errors: open_store().
  static Result<Cluster> open(const VolumeUri& uri, const StoreOptions& options = {},
                              std::chrono::nanoseconds limit = kLimit);
  /// `name`: of the cluster in the store. `limit`: of each request. Makes no request.
  Cluster(std::shared_ptr<MetadataStore> store, std::string name,
          std::chrono::nanoseconds limit = kLimit);

  /// The cluster's name in its store.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Borrowed from this handle.
  [[nodiscard]] MetadataStore& store() const noexcept { return *store_; }
  /// The store, to share it beyond the life of this handle.
  [[nodiscard]] const std::shared_ptr<MetadataStore>& shared_store() const noexcept {
    return store_;
  }
  /// The names of the cluster's keys.
  [[nodiscard]] const Keys& keys() const noexcept { return keys_; }
  /// Time limit of each request to the store.
  [[nodiscard]] std::chrono::nanoseconds limit() const noexcept { return limit_; }

  /// The generation; makes one if the cluster has none. Errors beside the above: kBusy.
  [[nodiscard]] Result<std::uint64_t> generation() const;
  /// For a transaction: the cluster still has this generation.
  [[nodiscard]] Compare generation_is(std::uint64_t generation) const;
  /// Sorted by name.
  [[nodiscard]] Result<std::vector<ServerRecord>> servers() const;
  /// Names of servers that are drained: no volume gets new members there. Sorted.
  [[nodiscard]] Result<std::vector<std::string>> draining() const;
  /// Those on which a volume may have new members: servers() without draining().
  [[nodiscard]] Result<std::vector<ServerRecord>> servers_for_members() const;
  /// Sorted by name.
  [[nodiscard]] Result<std::vector<VolumeRecord>> volumes() const;
  /// Errors beside the above: kNotFound; kBusy (it is being created or removed, or that was
  /// interrupted); kProtocol (a group is missing).
  [[nodiscard]] Result<VolumeLayout> layout(std::string_view volume) const;
  /// The same, also of a volume that is not ready; groups may be missing then.
  [[nodiscard]] Result<VolumeLayout> remains(std::string_view volume) const;

 private:
  [[nodiscard]] Result<VolumeLayout> read(std::string_view volume) const;

  std::shared_ptr<MetadataStore> store_;
  std::string name_;
  Keys keys_;
  std::chrono::nanoseconds limit_;
};

/// The text of the generation's value, and back.
[[nodiscard]] std::string generation_json(std::uint64_t generation);
/// Errors: as parse_server() (records.h).
Result<std::uint64_t> parse_generation(std::string_view key, std::string_view json);

}  // namespace remora::volume
