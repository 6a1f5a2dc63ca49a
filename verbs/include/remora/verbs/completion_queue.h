#pragma once

/// CompletionQueue and CompletionChannel: the completions of the NIC, and how to sleep until there
/// are some.
///
/// Both are handles, see device.h. A channel is a file descriptor that becomes readable when an
/// armed queue gets a completion; one channel may serve many queues. The sequence that loses no
/// completion is: arm, poll until empty, sleep on the descriptor, take the events, and again.
/// `wait()` does that.
///
/// Thread safety: `poll`, `arm` and `next_event` are safe concurrently (the provider locks); a
/// completion is returned to one caller only. One thread at a time may call `wait` and `wait_event`
/// of a channel.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/extended_poll.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

namespace detail {
struct CompletionChannelState;
struct CompletionQueueState;
}  // namespace detail

/// Names the queue of a channel that has made an event.
struct CompletionQueueEvent {
  ibv_cq* queue = nullptr;  ///< equal to CompletionQueue::raw() of the queue
  void* context = nullptr;  ///< CompletionQueueOptions::context of the queue
};
/// "queue 0x7f... context 0x7f...".
std::ostream& operator<<(std::ostream& out, const CompletionQueueEvent& event);

/// See the top of this file. Copyable handle.
class CompletionChannel {
 public:
  /// An empty handle.
  CompletionChannel() noexcept = default;

  /// The same as `device.create_completion_channel()`. Errors: kProvider, kSystem (errno kept).
  [[nodiscard]] static Result<CompletionChannel> create(const Device& device);

  /// True: made empty or moved from.
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  /// Non-blocking; readable when an event waits. Borrowed: for poll and epoll only.
  [[nodiscard]] int event_fd() const noexcept;
  /// Takes one event; empty: none waits. The class acknowledges events itself, in batches, and all
  /// events of a queue before it is destroyed. Errors: kProvider (errno kept).
  [[nodiscard]] Result<std::optional<CompletionQueueEvent>> next_event() const;
  /// next_event(), waiting for one. **Blocks.** One thread at a time for each channel. Errors:
  /// kTimedOut; kProvider, kSystem (errno kept).
  [[nodiscard]] Result<CompletionQueueEvent> wait_event(Deadline deadline) const;
  /// Borrowed.
  [[nodiscard]] ibv_comp_channel* raw() const noexcept;

  /// True: both name the same channel.
  friend bool operator==(const CompletionChannel& a, const CompletionChannel& b) noexcept {
    return a.state_ == b.state_;
  }

 private:
  friend class CompletionQueue;
  explicit CompletionChannel(std::shared_ptr<detail::CompletionChannelState> state) noexcept
      : state_{std::move(state)} {}
  std::shared_ptr<detail::CompletionChannelState> state_;
};

/// The options of a completion queue.
struct CompletionQueueOptions {
  /// The number of entries: at least the sum of the send and receive queues that complete here,
  /// with unsignaled requests, since they are flushed, too.
  std::uint32_t depth = 128;
  /// Makes a channel for this queue alone. Not together with `channel`.
  bool events = false;
  /// A channel shared with other queues; empty: none.
  CompletionChannel channel{};
  /// The device's interrupt vector that signals the channel.
  int vector = 0;
  /// Returned by CompletionChannel::next_event.
  void* context = nullptr;
  /// Not kNone: an extended queue, which `start_poll` polls with these fields (`poll` still works).
  CompletionFields fields = CompletionFields::kNone;
};

/// Which completion makes the event that arm() asks for.
enum class Notify : std::uint8_t {
  kAll,        ///< the next completion
  kSolicited,  ///< the next receive of a solicited message, or the next failure
};
/// "all" or "solicited".
[[nodiscard]] std::string_view to_string(Notify notify) noexcept;

/// See the top of this file. Copyable handle: the queue is destroyed with the last handle and the
/// last queue pair that uses it.
class CompletionQueue {
 public:
  /// An empty handle.
  CompletionQueue() noexcept = default;

  /// The same as `device.create_completion_queue(options)`.
  /// Errors: kInvalidArgument (depth 0, both kinds of channel, a channel of another device, a bad
  /// vector); kLimitExceeded (depth; asked() and allowed()); kUnsupported (a field); kOutOfMemory;
  /// kProvider, kSystem (errno kept). Source: ibv_create_cq(3), ibv_create_cq_ex(3).
  [[nodiscard]] static Result<CompletionQueue> create(const Device& device,
                                                      const CompletionQueueOptions& options);

  /// True: made empty or moved from.
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  /// The device that it was made on; valid as long as this handle.
  [[nodiscard]] const Device& device() const noexcept;
  /// The depth that the device granted: at least the requested one.
  [[nodiscard]] std::uint32_t depth() const noexcept {
    return static_cast<std::uint32_t>(cq_->cqe);
  }

  /// Takes up to `storage.size()` completions; the result is the front of `storage`. Never blocks.
  /// Errors: kProvider.
  [[nodiscard]] Result<std::span<const Completion>> poll(std::span<Completion> storage) const {
    // Standard layout with ibv_wc as its only member: the same bytes.
    const int count =
        poll_(cq_, static_cast<int>(storage.size()), reinterpret_cast<ibv_wc*>(storage.data()));
    if (count < 0) [[unlikely]]
      return Error{Code::kProvider, "ibv_poll_cq"}.with_errno(-count);
    return std::span<const Completion>{storage.data(), static_cast<std::size_t>(count)};
  }
  /// Takes completions one by one, with the fields the queue was created with. Never blocks; an
  /// empty queue gives an empty range. Errors: kInvalidArgument (a queue without fields);
  /// kProvider.
  [[nodiscard]] Result<ExtendedPoll> start_poll() const;
  /// ibv_poll_cq itself, through the function table: returns the number of completions, negative
  /// after a failure. Never blocks.
  int poll_raw(int count, ibv_wc* completions) const noexcept {
    return poll_(cq_, count, completions);
  }

  /// Asks for one event on the channel. Completions that exist already make none: poll again after
  /// arming. Errors: kInvalidArgument (no channel); kProvider (errno kept).
  Status arm(Notify notify = Notify::kAll) const;

  /// The channel, own or shared; empty when there is none.
  [[nodiscard]] const CompletionChannel& channel() const noexcept;
  /// The channel's descriptor; -1 when there is none.
  [[nodiscard]] int event_fd() const noexcept;

  /// Takes all waiting events of the queue's own channel, so that its descriptor is not readable
  /// any more. Returns how many there were. Errors: kInvalidArgument (no own channel); kProvider.
  [[nodiscard]] Result<std::uint32_t> take_events() const;

  /// Polls, and sleeps while there is no completion, until the first one or `deadline`. **Blocks.**
  /// Errors: kInvalidArgument (empty storage, no own channel); kTimedOut; kProvider, kSystem (errno
  /// kept).
  [[nodiscard]] Result<std::span<const Completion>> wait(std::span<Completion> storage,
                                                         Deadline deadline) const;

  /// Borrowed; never destroy it.
  [[nodiscard]] ibv_cq* raw() const noexcept { return cq_; }
  /// The same queue if it was created with fields, otherwise null. Borrowed; never destroy it.
  [[nodiscard]] ibv_cq_ex* raw_extended() const noexcept;

  /// True: both name the same queue.
  friend bool operator==(const CompletionQueue& a, const CompletionQueue& b) noexcept {
    return a.cq_ == b.cq_;
  }

 private:
  explicit CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state) noexcept;
  std::shared_ptr<detail::CompletionQueueState> state_;
  /// Copies of members of the state, so that a poll is one indirect call and no other load.
  ibv_cq* cq_ = nullptr;
  int (*poll_)(ibv_cq*, int, ibv_wc*) = nullptr;
};
/// "completion queue 3 of 127 entries on rxe0"; "no completion queue".
std::ostream& operator<<(std::ostream& out, const CompletionQueue& queue);
/// "completion channel 7 on rxe0", by its descriptor; "no completion channel".
std::ostream& operator<<(std::ostream& out, const CompletionChannel& channel);
/// "entries 128 vector 0 events fields length|timestamp".
std::ostream& operator<<(std::ostream& out, const CompletionQueueOptions& options);

}  // namespace remora::verbs
