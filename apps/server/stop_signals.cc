#include "server/stop_signals.h"

#include <cstring>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace remora::apps {

StopSignals::StopSignals() {
  ::sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&signals_, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread{[this] { watch(); }};
}

StopSignals::~StopSignals() {
  ::pthread_kill(thread_.native_handle(), SIGUSR1);  // ends watch()
  thread_.join();
}

void StopSignals::watch() {
  bool stopping = false;
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals_, &info);
    if (signal == SIGUSR1 && info.si_pid == ::getpid()) return;
    if (signal == SIGHUP) spdlog::info("SIGHUP: a running server reads no configuration again");
    if (signal != SIGTERM && signal != SIGINT) continue;
    if (stopping) {
      spdlog::warn("second SIG{}: ending at once", ::sigabbrev_np(signal));
      ::_exit(128 + signal);
    }
    stopping = true;
    first_.set_value(signal);
  }
}

}  // namespace remora::apps
