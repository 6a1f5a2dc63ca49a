#include "cli/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace remora::apps {
namespace {

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// The signals that end a program by default, and after which it can clean up.
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

void remember(int signal) { caught.store(signal, std::memory_order_relaxed); }

const char* name_of(int signal) noexcept {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGQUIT: return "SIGQUIT";
    case SIGPIPE: return "SIGPIPE";
    default: return "SIGTERM";
  }
}

}  // namespace

void catch_interrupts() noexcept {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // not SA_RESTART: a read of stdin must end
  for (const int signal : kEnding) {
    struct sigaction before {};
    // nohup(1) ignores SIGHUP, which must stay so. Shells without job control ignore SIGINT and
    // SIGQUIT in background commands, which a script's kill(1) must still end.
    const bool stays = signal == SIGHUP || signal == SIGPIPE;
    if (stays && ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN)
      continue;
    ::sigaction(signal, &action, nullptr);
  }
  // write(2) fails with EFBIG instead.
  ::signal(SIGXFSZ, SIG_IGN);
}

int interrupted() noexcept { return caught.load(std::memory_order_relaxed); }

Error interruption() noexcept {
  return Error{Code::kCancelled, "interrupted"}.with_subject(name_of(interrupted()));
}

}  // namespace remora::apps
