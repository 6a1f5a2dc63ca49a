#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace remora::apps {
namespace {

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { caught.store(signal, std::memory_order_relaxed); }

}  // namespace

void catch_interrupts() noexcept {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // not SA_RESTART: a read of stdin must end
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int interrupted() noexcept { return caught.load(std::memory_order_relaxed); }

Error interruption() noexcept {
  return Error{Code::kCancelled, "interrupted"}.with_subject(interrupted() == SIGINT ? "SIGINT"
                                                                                     : "SIGTERM");
}

}  // namespace remora::apps
