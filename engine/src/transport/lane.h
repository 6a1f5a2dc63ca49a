#pragma once

/// The client's data path: the engine posts chains of work requests and polls completions.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include <remora/metrics/recorder.h>
#include <remora/result.h>

#include "transport/rails.h"
#include "transport/work_request.h"

namespace remora::transport {

/// The outcome of requests. The requests of a lane complete in the order in which they were posted:
/// the request `sequence` has completed with `status`, and every request before it that no
/// completion has named yet has succeeded.
struct LaneCompletion {
  std::uint64_t sequence;
  CompletionStatus status;
  std::uint32_t vendor_error;
};

/// The outcome of posting a chain: the lane has taken, or may have taken, the first `taken`
/// requests, and none of the rest. `taken` is less than the length of the chain only together with
/// an error.
struct PostOutcome {
  std::size_t taken = 0;
  int error = 0;  ///< errno of the refusal; the lane cannot be used any more
};

/// One data path. The engine calls the lane once for a chain, never once for a request.
///
/// Thread safety: none; the engine serializes all calls except move_to_error(), which any thread
/// may call at any time before the destructor. Only close() blocks.
class Lane {
 public:
  struct Limits {
    std::uint32_t depth = 0;               ///< requests posted and not completed
    std::uint32_t transfer_bytes_max = 0;  ///< of one request
    std::uint32_t inline_bytes_max = 0;    ///< shorter writes, and this length, need no local key
    bool writes_zeroes = false;            ///< takes Opcode::kWriteZeroes
    /// Reads and atomics that the lane keeps in flight at a time; further ones wait within the
    /// lane, in order. 0: the lane accepts none.
    std::uint32_t initiator_depth = std::numeric_limits<std::uint32_t>::max();
  };
  virtual ~Lane() = default;

  [[nodiscard]] virtual const Limits& limits() const noexcept = 0;
  /// Posts `chain` with one doorbell; its requests get the sequences first_sequence, first_sequence
  /// + 1, … . The caller does not exceed Limits::depth, and keeps the local memory of each request
  /// valid until the request has completed or close() has returned. Only the last request of the
  /// chain, and some requests within it, are signaled; one LaneCompletion may stand for several
  /// requests.
  virtual PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept = 0;
  /// The number of signaled requests that the last post() has taken, without the last request of
  /// its chain. Not valid after a chain of one request.
  [[nodiscard]] std::uint32_t signaled_within() const noexcept { return signaled_within_; }
  /// From now on the lane counts in `counter` the requests that go to the device inline; the thread
  /// that posts records them.
  virtual void count_inline(metrics::Recorder recorder, metrics::Counter counter) noexcept {
    (void)recorder, (void)counter;
  }
  /// Writes completions to the beginning of `completions`; returns how many.
  virtual std::size_t poll(std::span<LaneCompletion> completions) noexcept = 0;
  /// Old values of atomics: the value of sequence s is at index s & (size - 1), valid from its
  /// completion until the sequence s + size is posted. Size is a power of two ≥ Limits::depth.
  [[nodiscard]] virtual std::span<const std::uint64_t> atomic_results() const noexcept = 0;

  /// Asks for event_fd() to become readable at the next completion. The caller polls once more
  /// after arming. Errors: those of the transport; the lane cannot be used any more.
  virtual Status arm() noexcept = 0;
  /// Takes the events that made event_fd() readable.
  virtual void drain_events() noexcept = 0;
  /// Readable after a completion that followed arm(). The lane owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;

  /// Moves the lane to its error state: all posted requests complete soon, as flushed. Idempotent.
  virtual void move_to_error() noexcept = 0;
  /// Ends the lane: on return the lane touches no local memory any more, and completions that were
  /// not polled are lost. Blocks while a device destroys its queues. Idempotent.
  virtual void close() noexcept = 0;
  /// close() of a lane that is broken or was never used, and has no posted request. A thread of the
  /// transport may destroy the device's objects later, since destruction can be slow. Never blocks.
  virtual void close_later() noexcept { close(); }

  /// The rail that the lane uses; null when the session has one device.
  [[nodiscard]] virtual std::shared_ptr<const LaneRail> rail() const noexcept { return nullptr; }
  /// For metrics: the capacity of the completion queue.
  [[nodiscard]] virtual std::uint32_t completion_capacity() const noexcept = 0;

 protected:
  std::uint32_t signaled_within_ = 0;
};

}  // namespace remora::transport
