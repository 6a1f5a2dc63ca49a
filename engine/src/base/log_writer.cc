#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <deque>
#include <exception>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/engine/log_writer.h>
#include <remora/mutex.h>
#include <remora/start_thread.h>

namespace remora {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStopPause{200};
constexpr milliseconds kLook{100};  // how long the thread waits in one poll(2) for room in a pipe
constexpr milliseconds kStopAll{1000};

std::string plain_lost_line(std::uint64_t lost) {
  return "remora: warning: " + std::to_string(lost) +
         " lines of the log were lost, since the log could not be written fast enough or at all\n";
}

/// Writes `text` without SIGPIPE and without blocking; false: not all of it was written. A pipe
/// that poll(2) reports as writable takes PIPE_BUF bytes.
bool write_at_once(int descriptor, std::string_view text) noexcept {
  sigset_t pipe{};
  sigset_t before{};
  sigset_t pending{};
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::sigpending(&pending);
  const bool was_pending = ::sigismember(&pending, SIGPIPE) == 1;
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  bool good = true;
  while (good && !text.empty()) {
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    good = ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
    const ssize_t count =
        good ? ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF)) : -1;
    good = count > 0;
    if (good) text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (!was_pending) {  // takes the SIGPIPE of this write, if there was one
    const timespec none{};
    while (::sigtimedwait(&pipe, nullptr, &none) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return good;
}

}  // namespace

struct LogWriter::State {
  struct Line {
    std::string text;
    std::uint64_t lost_before;  ///< lines lost between the line before and this line
  };

  State(int log_descriptor, Limits queue_limits)
      : descriptor{log_descriptor}, limits{queue_limits} {}

  /// Starts the thread. False: the system refuses a thread.
  bool start(const std::shared_ptr<State>& self) REMORA_REQUIRES(mutex);
  bool queue(const std::shared_ptr<State>& self, std::string_view line);
  void run() noexcept;
  /// write_next() and tell_lost() unlock the mutex while they write.
  void write_next() REMORA_REQUIRES(mutex);
  void tell_lost() REMORA_REQUIRES(mutex);
  bool put(std::string_view text) noexcept;
  bool await_writable() noexcept;

  const int descriptor;
  const Limits limits;
  const pid_t process = ::getpid();
  std::atomic<std::uint64_t> lost{0};
  std::atomic<bool> stopping{false};

  detail::Mutex mutex;
  detail::Condition changed;
  std::deque<Line> lines REMORA_GUARDED_BY(mutex);
  std::size_t queued_bytes REMORA_GUARDED_BY(mutex) = 0;
  std::uint64_t taken REMORA_GUARDED_BY(mutex) = 0;
  /// Of the lines that were queued: those that were written or lost.
  std::uint64_t done REMORA_GUARDED_BY(mutex) = 0;
  /// Lines lost after the last line of the queue.
  std::uint64_t lost_last REMORA_GUARDED_BY(mutex) = 0;
  std::uint64_t lost_untold REMORA_GUARDED_BY(mutex) = 0;
  /// Whether the last write succeeded.
  bool works REMORA_GUARDED_BY(mutex) = true;
  LostLine lost_line REMORA_GUARDED_BY(mutex) = plain_lost_line;
  bool running REMORA_GUARDED_BY(mutex) = false;
  /// The thread runs only while there are lines to write.
  std::thread thread REMORA_GUARDED_BY(mutex);
};

bool LogWriter::State::start(const std::shared_ptr<State>& self) {
  if (running) return true;
  if (thread.joinable()) thread.join();  // the thread has returned, or is about to
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits the mask
  auto started = detail::start_thread("remora-log-out", [self] { self->run(); });
  running = started.ok();
  if (running) thread = std::move(*started);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return running;
}

void LogWriter::State::run() noexcept {
  const detail::MutexLock lock{mutex};
  while (!lines.empty()) {
    write_next();
    if (lines.empty() && works) tell_lost();
    if (stopping && !works) {  // each further line would wait
      lost += lines.size();
      lines.clear();
    }
    changed.notify_all();
  }
  running = false;
  changed.notify_all();
}

void LogWriter::State::write_next() {
  const Line line = std::move(lines.front());
  lines.pop_front();
  queued_bytes -= line.text.size();
  lost_untold += line.lost_before;
  // After a failure this line tests whether writing works again: it is worth more than the count.
  if (works) tell_lost();
  mutex.unlock();
  const bool good = put(line.text);
  mutex.lock();
  if (!good) {
    ++lost;
    ++lost_untold;
  }
  works = good;
  ++done;
}

void LogWriter::State::tell_lost() {
  if (lines.empty()) lost_untold += std::exchange(lost_last, 0);
  if (lost_untold == 0) return;
  const std::uint64_t telling = std::exchange(lost_untold, 0);
  const LostLine make = lost_line;
  mutex.unlock();
  const bool good = put(make(telling));
  mutex.lock();
  if (!good) lost_untold += telling;
  works = good;
}

bool LogWriter::State::await_writable() noexcept {
  while (true) {
    const bool last = stopping;
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int count = ::poll(&ready, 1, static_cast<int>((last ? kStopPause : kLook).count()));
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) return true;  // on an error of the descriptor, write(2) fails and tells
    if (count == 0 && last) return false;
  }
}

bool LogWriter::State::put(std::string_view text) noexcept {
  while (!text.empty()) {
    if (!await_writable()) return false;
    const ssize_t count =
        ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

LogWriter::LogWriter(int descriptor) : LogWriter{descriptor, Limits{}} {}

LogWriter::LogWriter(int descriptor, Limits limits)
    : state_{std::make_shared<State>(descriptor, limits)} {}

LogWriter::~LogWriter() {
  stop(kStopAll);
  // In a child of fork(2) the mutex may be locked and the thread does not exist, so the child keeps
  // the state and does not use it.
  if (::getpid() != state_->process)
    static_cast<void>(new (std::nothrow) std::shared_ptr<State>{state_});
}

LogWriter& LogWriter::of_stderr() {
  // Never destroyed: see log.cc. A line that a later destructor logs is written at once.
  static LogWriter& shared = *new LogWriter{STDERR_FILENO};
  struct AtEnd {
    ~AtEnd() { shared.stop(kStopAll); }
  };
  static const AtEnd at_end;
  return shared;
}

/// True: the line is queued, or lost and counted. False: there is no thread that would write it.
bool LogWriter::State::queue(const std::shared_ptr<State>& self, std::string_view line) {
  const detail::MutexLock lock{mutex};
  if (stopping || !start(self)) return false;
  if (lines.size() >= limits.lines_max || queued_bytes + line.size() > limits.bytes_max) {
    ++lost;
    ++lost_last;
    return true;
  }
  lines.push_back({std::string{line}, lost_last});
  lost_last = 0;
  queued_bytes += line.size();
  ++taken;
  changed.notify_all();
  return true;
}

void LogWriter::write(std::string_view line) noexcept {
  State& state = *state_;
  try {
    // In a child of fork(2), a thread that does not exist there may hold the mutex.
    if (::getpid() == state.process && state.queue(state_, line)) return;
    if (!write_at_once(state.descriptor, line)) ++state.lost;
  } catch (const std::exception&) {  // out of memory for the line
    ++state.lost;
  }
}

bool LogWriter::flush(milliseconds timeout_ms) noexcept {
  State& state = *state_;
  if (::getpid() != state.process) return true;
  detail::MutexLock lock{state.mutex};
  const std::uint64_t target = state.taken;
  return state.changed.wait_for(lock, timeout_ms, [&] {
    state.mutex.assert_held();
    return state.done >= target || !state.running;
  });
}

void LogWriter::stop(milliseconds timeout_ms) noexcept {
  State& state = *state_;
  if (::getpid() != state.process) return;
  detail::MutexLock lock{state.mutex};
  if (state.stopping.exchange(true)) return;
  if (!state.thread.joinable()) return;
  const bool ended = state.changed.wait_for(lock, timeout_ms, [&] {
    state.mutex.assert_held();
    return !state.running;
  });
  std::thread thread = std::move(state.thread);
  lock.unlock();
  // A write(2) that does not return (a file of a server that does not answer) must not delay the
  // end of the process.
  if (ended)
    thread.join();
  else
    thread.detach();
}

void LogWriter::set_lost_line(LostLine make) {
  const detail::MutexLock lock{state_->mutex};
  state_->lost_line = std::move(make);
}

std::uint64_t LogWriter::lost() const noexcept { return state_->lost; }

}  // namespace remora
