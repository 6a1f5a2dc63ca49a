#pragma once

/// Makes this process stand still, as on a host that does not run it.

#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace remora::test {

/// Stops this process for `time`; another process lets it go on. Returns when it does.
inline void stand_still(std::chrono::milliseconds time) {
  const pid_t stopped = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::kill(stopped, SIGSTOP);
    ::usleep(static_cast<useconds_t>(time.count()) * 1000);
    ::kill(stopped, SIGCONT);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

}  // namespace remora::test
