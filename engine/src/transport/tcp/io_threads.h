#pragma once

/// The threads that serve lanes over tcp. A session stays on one of them: docs/tcp-threads.md.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <remora/assert.h>
#include <remora/result.h>

#include "transport/tcp/io_thread.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/thread_seat.h"

namespace remora::transport::tcp {

class IoThreads {
 public:
  /// The number of threads for the configuration `auto` on a machine with this many processors.
  [[nodiscard]] static std::uint32_t automatic_count(std::uint32_t processors) noexcept;

  /// Starts `wanted` threads; if it is 0, automatic_count() of this machine, or as many of them as
  /// the system gives, at least one. Errors: see IoThread::start().
  static Result<std::shared_ptr<IoThreads>> start(const ServedMetrics& metrics,
                                                  std::chrono::nanoseconds spin,
                                                  std::uint32_t wanted);
  explicit IoThreads(std::vector<std::shared_ptr<IoThread>> threads)
      : threads_{std::move(threads)},
        sessions_{std::make_shared<ThreadSeat::Counts>(threads_.size())} {}

  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }
  /// A seat on the thread that has the fewest sessions. One thread at a time takes seats; any
  /// thread may release them.
  [[nodiscard]] ThreadSeat take_seat() const;
  /// The thread that serves the lanes of the session.
  [[nodiscard]] IoThread& of(const ServedSession& session) const noexcept {
    REMORA_ASSERT(session.thread() < threads_.size(), "a session has a seat of these threads");
    return *threads_[session.thread()];
  }

 private:
  std::vector<std::shared_ptr<IoThread>> threads_;
  std::shared_ptr<ThreadSeat::Counts> sessions_;
};

}  // namespace remora::transport::tcp
