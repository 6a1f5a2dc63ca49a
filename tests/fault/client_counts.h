#pragma once

/// What a client's engine counts, against what its user was told (I9).

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/result.h>

namespace remora::fault {

/// Ends of operations by the label `status` of remora_client_operations_total.
using EndCounts = std::map<std::string, std::uint64_t>;

/// The status of an operation whose user was told this code, unless it was refused before it
/// reached a lane: that is "misuse", whatever the code.
[[nodiscard]] const char* status_of(Code code) noexcept;
/// What the engine has counted so far.
[[nodiscard]] EndCounts counted_ends(const metrics::Registry& registry);
/// What differs, a line each.
[[nodiscard]] std::vector<std::string> compare_ends(const EndCounts& told,
                                                    const EndCounts& counted);

/// What the handlers of an engine were told of its sessions, and what the engine says of how often.
struct SessionEvents {
  std::map<Reason, std::uint64_t> interrupted{};
  std::uint64_t resumed = 0;
  std::map<Reason, std::uint64_t> ended{};  ///< lost or stale

  /// For the report: "interrupted: lane broken" and so on.
  [[nodiscard]] std::map<std::string, std::uint64_t> by_text() const;
};

/// As many interruptions, resumptions and ends were told as the engine has counted. They are told a
/// little later, and no more once their session is closed.
[[nodiscard]] bool all_told(const SessionEvents& told, const metrics::Registry& registry);
/// Each session that has begun has ended: the last of an engine's threads may do that.
[[nodiscard]] bool all_ended(const metrics::Registry& registry);
/// What differs, a line each: how many; by which reasons, where what was told leaves no choice of
/// the label `reason`; and that each session which has begun has ended, once. For an engine whose
/// sessions are closed.
[[nodiscard]] std::vector<std::string> compare_session_events(const SessionEvents& told,
                                                              const metrics::Registry& registry);

}  // namespace remora::fault
