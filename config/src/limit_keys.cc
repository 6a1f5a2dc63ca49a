// Keys for the limits on the resources that clients can use.

#include <array>
#include <cstdint>

#include "key_builders.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table

constexpr auto kMaxPendingHandshakes =
    number([](auto& c, std::size_t) -> auto& { return c.limits.pending_handshakes_max; });
constexpr auto kResumesPerMinute =
    number([](auto& c, std::size_t) -> auto& { return c.limits.resumes_per_minute; });
constexpr auto kRequestsPerSecond =
    number([](auto& c, std::size_t) -> auto& { return c.limits.requests_per_second; });
constexpr auto kSessionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.sessions_max; });
constexpr auto kRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.regions_max; });
constexpr auto kSessionRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.session_regions_max; });
constexpr auto kSessionMemory =
    optional_number([](auto& c, std::size_t) -> auto& { return c.limits.session_memory_bytes; });
constexpr auto kHandshakeTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.handshake_timeout; });
constexpr auto kRequestTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.request_timeout; });
constexpr auto kSessionLease =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.session_lease; });
constexpr auto kSessionKeep =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.session_keep; });
constexpr auto kDrainTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.drain_timeout; });
constexpr auto kRevokeGrace =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.revoke_grace; });
constexpr auto kRegistrationsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.registrations_max; });
constexpr auto kWindowsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.windows_max; });
constexpr auto kRegisteredBytesMax =
    optional_number([](auto& c, std::size_t) -> auto& { return c.limits.registered_bytes_max; });

constexpr std::array kLimitKeys{
    group("limits", KeyType::kMap, "Bounds on the resources that clients can use."),
    ranged("limits.sessions_max", KeyType::kNumber, 1, 65536, kSessionsMax,
           "Clients connected at once."),
    ranged("limits.regions_max", KeyType::kNumber, 1, 65536, kRegionsMax,
           "Regions that exist at once, those of this file included."),
    ranged("limits.session_regions_max", KeyType::kNumber, 1, 65536, kSessionRegionsMax,
           "Regions that one session has open at once."),
    ranged("limits.session_memory", KeyType::kSize, 4 * kKiB, 64 * kTiB, kSessionMemory,
           "Limit of bytes of the regions that one session has open at once; a region that is open "
           "twice counts twice. Over rdma with registrations, a session can have so much memory "
           "pinned. Without it only the number of open regions is bounded."),
    ranged("limits.handshake_timeout", KeyType::kDuration, 100 * kMillisecond, 10 * kMinute,
           kHandshakeTimeout, "A connection without a valid hello by then is closed."),
    ranged("limits.request_timeout", KeyType::kDuration, 100 * kMillisecond, kHour, kRequestTimeout,
           "Longest time of one control request. Creating a region includes waiting for memory "
           "that is being zeroed; a smaller request may be served first."),
    ranged("limits.session_lease", KeyType::kDuration, 1000 * kMillisecond, kHour, kSessionLease,
           "A session whose client has sent nothing for so long loses its lanes, except over shm, "
           "where memory stays mapped. Clients send something every quarter of it."),
    ranged("limits.session_keep", KeyType::kDuration, 0, kHour, kSessionKeep,
           "A session that has lost its client keeps its open regions for so long, so that the "
           "client can resume it. 0s: it ends at once."),
    ranged("limits.drain_timeout", KeyType::kDuration, 0, kHour, kDrainTimeout,
           "After a request to stop, the server refuses new clients and tells each session; then "
           "sessions have this long to end by themselves. The server does not wait longer than "
           "they need. 0s: they end at once."),
    ranged("limits.pending_handshakes_max", KeyType::kNumber, 1, 65536, kMaxPendingHandshakes,
           "Connections without a valid hello so far; one more takes the place of the oldest."),
    ranged("limits.requests_per_second", KeyType::kNumber, 10, 1'000'000, kRequestsPerSecond,
           "Control requests of one session; twice as many may come at once. The requests of a "
           "client that asks more often wait."),
    ranged("limits.resumes_per_minute", KeyType::kNumber, 1, 1'000'000, kResumesPerMinute,
           "How often in a minute a session that has lost a lane or its connection may resume; one "
           "more ends it. Each refused access breaks a lane, so this bounds how fast a client can "
           "try keys of memory."),
    ranged("limits.revoke_grace", KeyType::kDuration, kMillisecond, kMinute, kRevokeGrace,
           "A client whose grant is revoked has this long to stop using it; then the grant ends "
           "without the client's agreement."),
    ranged("limits.registrations_max", KeyType::kNumber, 0, 1'000'000'000, kRegistrationsMax,
           "Registrations with all RDMA devices: one for each extent of an open region (sessions "
           "that prove one key share it), control channel and lane. With memory windows, instead "
           "of those of regions: one for each piece of the pool and extent of a region with shm. "
           "Opening a region that needs more is refused. 0: each device's own limit."),
    ranged("limits.windows_max", KeyType::kNumber, 0, 1'000'000'000, kWindowsMax,
           "Memory windows of RDMA devices at once, over all sessions: for each extent of an open "
           "region one for each lane, also while the client is lost and may resume. Opening a "
           "region that needs more is refused. 0: the device's limit."),
    ranged("limits.registered_bytes_max", KeyType::kSize, 4 * kKiB, 16'384 * kTiB,
           kRegisteredBytesMax,
           "Bytes of regions that are registered with RDMA devices at once, over all sessions; "
           "sessions that prove one key share them. With memory windows only those of regions with "
           "shm. Opening a region that needs more is refused. Without it the server's limit on "
           "locked memory is the only bound."),
};

}  // namespace

std::span<const Key> limit_keys() { return kLimitKeys; }

}  // namespace remora::config
