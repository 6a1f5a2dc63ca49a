#pragma once

/// The control channel over rdma: bounded messages by SEND on a queue pair of its own.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/verbs.h>

#include "base/clock.h"
#include "transport/control_message.h"
#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

/// Buffers and completion queues of one end of a control channel; made before its queue pair.
///
/// Thread safety: one thread at a time calls send(), one other thread receive().
class ControlBuffers {
 public:
  static Result<ControlBuffers> create(const verbs::ProtectionDomain& domain);

  [[nodiscard]] verbs::QueuePairBuilder<verbs::Rc> builder() const;
  /// Posts the receives. Called before the connection is requested or accepted, since the peer may
  /// send at once.
  Status post_receives(verbs::QueuePair<verbs::Rc>& pair);

  /// Waits for a free buffer. Errors: kTimedOut (no buffer is free: the peer does not take the
  /// messages that were sent), kConnectionLost; kProvider: also a completion of what is not posted,
  /// after which `pair` is in its error state, so that receive() fails, too.
  Status wait_for_room(verbs::QueuePair<verbs::Rc>& pair, Deadline deadline) noexcept;
  /// Errors: those of wait_for_room().
  Status send(verbs::QueuePair<verbs::Rc>& pair, std::span<const std::byte> message,
              Deadline deadline) noexcept;
  /// The next message; empty: none has arrived. Errors: kConnectionLost, kProvider as
  /// wait_for_room().
  Result<std::optional<ControlMessage>> receive(verbs::QueuePair<verbs::Rc>& pair) noexcept;
  /// Waits until all sends have completed, at most until `deadline`.
  void flush(verbs::QueuePair<verbs::Rc>& pair, Deadline deadline) noexcept;
  /// Readable when receive() has a message or an error, after it has returned an empty result.
  [[nodiscard]] int event_fd() const noexcept { return receive_queue_.event_fd(); }

 private:
  ControlBuffers(std::vector<std::byte> bytes, verbs::CompletionQueue send_queue,
                 verbs::CompletionQueue receive_queue) noexcept
      : bytes_{std::move(bytes)},
        send_queue_{std::move(send_queue)},
        receive_queue_{std::move(receive_queue)} {}
  [[nodiscard]] std::span<std::byte> buffer(std::size_t index) noexcept {
    return std::span{bytes_}.subspan(index * kMaxControlMessageBytes, kMaxControlMessageBytes);
  }
  Status post_receive(verbs::QueuePair<verbs::Rc>& pair, std::size_t index) noexcept;
  Status collect_sends(verbs::QueuePair<verbs::Rc>& pair) noexcept;
  /// Whether the buffer `index` is one of a posted send.
  [[nodiscard]] bool is_sent(std::uint64_t index) const noexcept;
  Result<std::optional<ControlMessage>> take_one(verbs::QueuePair<verbs::Rc>& pair) noexcept;

  std::vector<std::byte> bytes_;  // the receive buffers, then the send buffers
  std::optional<verbs::MemoryRegion> memory_;
  verbs::CompletionQueue send_queue_;
  verbs::CompletionQueue receive_queue_;
  std::vector<std::size_t> free_sends_;
};

/// The remainder of a control channel. The buffers are destroyed after the queue pair, which may
/// write to them.
struct ControlRemains {
  ControlBuffers buffers;
  verbs::Connection connection;
};

}  // namespace remora::transport::rdma
