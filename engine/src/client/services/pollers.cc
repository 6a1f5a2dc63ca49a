#include "client/services/pollers.h"

#include <utility>

#include "base/thread_clocks.h"

namespace remora::detail {

namespace {

/// The metric lives as long as the registry. It counts the time of all pollers of the process,
/// whichever engine declares it.
Status declare_cpu_time(metrics::Registry& registry) {
  auto made = registry.counter_callback("remora_client_poller_cpu_seconds_total",
                                        "CPU time of the pollers of this process.", {},
                                        [] { return Poller::cpu_clocks().seconds(); });
  if (made) {
    made->release();
    return {};
  }
  // A missing metric is no reason to refuse callbacks.
  if (made.error().code() == Code::kAlreadyExists || made.error().code() == Code::kLimitExceeded)
    return {};
  return made.error();
}

}  // namespace

Result<Poller*> Pollers::pick(std::size_t max_count, std::chrono::nanoseconds spin,
                              const Placement& placement, metrics::Registry& registry) {
  if (max_count == 0)
    return Error{Code::kUnsupported, "callback_queue"}.with_subject(
        "EngineOptions::pollers is 0: set it to 1 or more");
  const auto least = std::min_element(
      pollers_.begin(), pollers_.end(),
      [](const auto& one, const auto& other) { return one->load() < other->load(); });
  if (least != pollers_.end() && ((*least)->load() == 0 || pollers_.size() >= max_count))
    return least->get();
  if (auto declared = declare_cpu_time(registry); !declared) return declared.error();
  auto started = Poller::start(spin, placement);
  if (!started) return started.error();
  pollers_.push_back(std::move(*started));
  return pollers_.back().get();
}

}  // namespace remora::detail
