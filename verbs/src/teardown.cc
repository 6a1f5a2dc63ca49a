#include <atomic>

#include <remora/verbs/teardown.h>

namespace remora::verbs {
namespace {

std::atomic<TeardownFailureHandler> g_handler{nullptr};
std::atomic<std::uint64_t> g_failures{0};

}  // namespace

TeardownFailureHandler set_teardown_failure_handler(TeardownFailureHandler handler) noexcept {
  return g_handler.exchange(handler, std::memory_order_acq_rel);
}

std::uint64_t teardown_failure_count() noexcept {
  return g_failures.load(std::memory_order_relaxed);
}

void report_teardown_failure(const Error& error) noexcept {
  g_failures.fetch_add(1, std::memory_order_relaxed);
  if (TeardownFailureHandler handler = g_handler.load(std::memory_order_acquire)) handler(error);
}

}  // namespace remora::verbs
