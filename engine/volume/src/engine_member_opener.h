#pragma once

/// Opens and fences members of mirrors through the engine.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine_share.h>
#include <remora/mutex.h>
#include <remora/volume/cluster.h>

#include "member_finder.h"
#include "member_opener.h"

namespace remora::volume::detail {

/// Rules 5 and 6. A server that did not answer is not tried again for kRemembered, so that its
/// groups do not cost a connection attempt each. Thread-safe: a call waits for another one only
/// while that looks for the same server.
class EngineMemberOpener final : public MemberOpener {
 public:
  static constexpr std::chrono::seconds kRemembered{5};

  /// `transport`: kAuto, kRdma or kTcp. `size_bytes`: of a member's region.
  /// `limit`: of each operation on a member.
  EngineMemberOpener(remora::detail::EngineShare engine, const Cluster& cluster,
                     TransportKind transport, Rights rights, std::uint64_t size_bytes,
                     std::chrono::nanoseconds limit);

  Result<std::shared_ptr<MirrorMember>> open(const Member& member) override;
  Result<std::shared_ptr<MirrorMember>> fence(const Member& member) override;

 private:
  /// Where a server's members are, as it was last found.
  struct FoundServer {
    remora::detail::Mutex mutex;
    std::optional<MemberFinder> finder REMORA_GUARDED_BY(mutex);
    /// Of its record; empty: those that a member was made with have to do.
    std::vector<std::string> addresses REMORA_GUARDED_BY(mutex);
    std::chrono::steady_clock::time_point looked REMORA_GUARDED_BY(mutex){};
  };

  /// The only place that waits for the server, or for the store.
  Result<std::string> find(FoundServer& server, const Member& member);
  Result<std::shared_ptr<MirrorMember>> made(FoundServer& server, Result<Region> region,
                                             const Member& member);
  FoundServer& server_of(const Member& member);

  const remora::detail::EngineShare engine_;
  const Cluster cluster_;
  const TransportKind transport_;
  const Rights rights_;
  const std::uint64_t size_bytes_;
  const std::chrono::nanoseconds limit_;
  remora::detail::Mutex mutex_;
  /// By name. One is never removed.
  std::map<std::string, FoundServer> servers_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
