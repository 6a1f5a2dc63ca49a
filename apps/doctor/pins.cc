#include "doctor/pins.h"

#include <algorithm>
#include <cstdint>

namespace remora::apps::doctor {
namespace {

/// Control buffers of a session, on each side.
constexpr std::uint64_t kSessionBytes = std::uint64_t{320} << 10U;
/// Bounce slots and zeroes of a client.
constexpr std::uint64_t kClientBytes = (std::uint64_t{2} << 20U) + (std::uint64_t{256} << 10U);

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/// The bytes that the grants of `sessions` sessions pin, if each session has `each` bytes open.
/// Sessions that prove one key share the registrations of a region, as long as they open it with
/// the same rights.
std::uint64_t pinned_by_grants(const config::ServerConfig& config, std::uint64_t sessions,
                               std::uint64_t each) noexcept {
  const std::uint64_t unshared = saturating_product(sessions, each);
  if (config.auth != config::Auth::kKeys) return unshared;
  std::uint64_t keys = 0;
  for (const config::ClientConfig& client : config.clients) keys += client.previous_key ? 2U : 1U;
  return std::min(unshared,
                  saturating_product(std::max<std::uint64_t>(keys, 1), config.pool.size_bytes));
}

}  // namespace

PinnedBytes pinned_by_server(const config::ServerConfig& config) noexcept {
  using config::RdmaProtection;
  const std::uint64_t pool = config.pool.size_bytes;
  const std::uint64_t sessions = std::max<std::uint64_t>(config.limits.sessions_max, 1);
  const std::uint64_t control = saturating_product(sessions, kSessionBytes);
  const RdmaProtection protection = config.transports.rdma_protection;
  if (protection == RdmaProtection::kWindows || protection == RdmaProtection::kWindowsUnchecked)
    return {saturating_sum(pool, kSessionBytes), saturating_sum(pool, control)};
  const std::uint64_t bound = config.limits.session_memory_bytes;
  const std::uint64_t over_all = config.limits.registered_bytes_max;  // more is refused; 0: none
  const auto bounded = [over_all](std::uint64_t bytes) {
    return over_all == 0 ? bytes : std::min(bytes, over_all);
  };
  const std::uint64_t each = bound == 0 ? pool : std::min(bound, pool);
  return {saturating_sum(bounded(each), kSessionBytes),
          saturating_sum(bounded(pinned_by_grants(config, sessions, each)), control)};
}

PinnedBytes pinned_by_client() noexcept {
  return {kClientBytes + kSessionBytes, kClientBytes + kSessionBytes};
}

}  // namespace remora::apps::doctor
