#pragma once

/// Finds the servers of members.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/engine_share.h>
#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume::detail {

/// Tries each server once. One thread.
class MemberFinder {
 public:
  /// A server that answers, and where.
  struct Reached {
    std::string address{};
    std::uint64_t memory_id = 0;
  };

  MemberFinder(remora::detail::EngineShare engine, TransportKind transport)
      : engine_{std::move(engine)}, transport_{transport} {}

  /// The URI of the member's region. Errors: kStaleRegion (its server has other memory), those of
  /// Engine::connect(). `present`: the addresses that the server's record has.
  Result<std::string> find(const Member& member, const std::vector<std::string>& present);
  /// A region that was opened for `member`. Errors: kStaleRegion, kUnsupported (over shm),
  /// kProtocol (smaller than `size_bytes`).
  Result<Region> checked(Result<Region> region, const Member& member,
                         std::uint64_t size_bytes) const;

 private:
  const Result<Reached>& reach(const Member& member, const std::vector<std::string>& present);
  [[nodiscard]] std::string uri(const std::string& address, const std::string& region) const;

  const remora::detail::EngineShare engine_;
  TransportKind transport_;
  /// By name and memory id.
  std::map<std::pair<std::string, std::uint64_t>, Result<Reached>> servers_;
};

}  // namespace remora::volume::detail
