#include "server/signals.h"

#include <cstring>
#include <pthread.h>
#include <string>
#include <unistd.h>
#include <utility>

#include <remora/start_thread.h>

#include "server/log.h"

namespace remora::apps {

void hold_hang_up() noexcept {
  sigset_t hang_up;
  ::sigemptyset(&hang_up);
  ::sigaddset(&hang_up, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &hang_up, nullptr);
}

Result<std::unique_ptr<Signals>> Signals::start() {
  std::unique_ptr<Signals> signals{new Signals};
  ::sigemptyset(&signals->signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
    ::sigaddset(&signals->signals_, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals->signals_, nullptr);
  auto thread = detail::start_thread("remora-signals", [raw = signals.get()] { raw->watch(); });
  if (!thread) return thread.error();
  signals->thread_ = std::move(*thread);
  return signals;
}

Signals::~Signals() {
  if (!thread_.joinable()) return;
  ::pthread_kill(thread_.native_handle(), SIGUSR1);  // ends watch()
  thread_.join();
}

int Signals::wait() {
  detail::MutexLock lock{mutex_};
  first_came_.wait(lock, [this] {
    mutex_.assert_held();
    return first_ != 0;
  });
  return first_;
}

int Signals::wait(std::chrono::nanoseconds period, const std::function<void()>& tick) {
  detail::MutexLock lock{mutex_};
  const auto came = [this] {
    mutex_.assert_held();
    return first_ != 0;
  };
  while (!first_came_.wait_for(lock, period, came)) {
    lock.unlock();
    tick();
    lock.lock();
  }
  return first_;
}

void Signals::on_second(std::function<void()> action) {
  const detail::MutexLock lock{mutex_};
  second_ = std::move(action);
  if (second_ && received_ >= 2) second_();
}

void Signals::on_hang_up(std::function<void()> action) {
  const detail::MutexLock lock{mutex_};
  hang_up_ = std::move(action);
  if (hang_up_ && std::exchange(hung_up_, false)) hang_up_();
}

void Signals::hung_up() {
  const detail::MutexLock lock{mutex_};
  if (hang_up_) return hang_up_();
  log_info("config.waits",
           "SIGHUP: the server starts or stops; nothing is read again before it has started");
  hung_up_ = true;
}

void Signals::watch() {
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals_, &info);
    if (signal == SIGUSR1 && info.si_pid == ::getpid()) return;
    if (signal == SIGHUP) hung_up();
    if (signal == SIGTERM || signal == SIGINT) told_to_stop(signal);
  }
}

void Signals::told_to_stop(int signal) {
  const detail::MutexLock lock{mutex_};
  ++received_;
  if (received_ == 1) {
    first_ = signal;
    stop_.request_stop();
    first_came_.notify_all();
  } else if (received_ == 2) {
    log_warn("server.stops_early",
             "second SIG" + std::string{::sigabbrev_np(signal)} + ": not waiting for clients",
             {{"signal", ::sigabbrev_np(signal)}});
    if (second_) second_();
  } else {
    log_warn("server.ends_at_once",
             "third SIG" + std::string{::sigabbrev_np(signal)} + ": ending at once",
             {{"signal", ::sigabbrev_np(signal)}});
    flush_log();
    ::_exit(128 + signal);
  }
}

}  // namespace remora::apps
