#pragma once

/// ExtendedPoll: completions with the requested fields, as a range.
///
/// ```cpp
/// auto queue = device.create_completion_queue({.fields = CompletionFields::kTimestamp}).value();
/// if (auto poll = queue.start_poll())
///   for (const ExtendedCompletion& done : *poll) log(done.id(), done.timestamp());
/// ```
///
/// A poll takes completions one by one out of the queue, without a copy, until it is empty or the
/// loop ends; completions that the loop has not reached stay in the queue. Destroying the object
/// ends the poll.
///
/// Thread safety: one thread, and no other use of the queue while a poll of it lives.
/// Source: ibv_create_cq_ex(3).

#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <remora/owned.h>
#include <remora/result.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

namespace detail {
struct CompletionQueueState;
}  // namespace detail

/// A set, combined with `|`. Values equal the verbs flags.
enum class CompletionFields : std::uint32_t {
  kNone = 0,
  kLength = IBV_WC_EX_WITH_BYTE_LEN,
  kImmediate = IBV_WC_EX_WITH_IMM,
  kQueuePair = IBV_WC_EX_WITH_QP_NUM,
  kSourceQueuePair = IBV_WC_EX_WITH_SRC_QP,
  kSourceLid = IBV_WC_EX_WITH_SLID,
  kServiceLevel = IBV_WC_EX_WITH_SL,
  kPathBits = IBV_WC_EX_WITH_DLID_PATH_BITS,
  kTimestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,  ///< the device's clock, Device::query_clock
  kWallClock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
  /// The fields that Completion has, too.
  kStandard =
      kLength | kImmediate | kQueuePair | kSourceQueuePair | kSourceLid | kServiceLevel | kPathBits,
};
/// All fields of both.
[[nodiscard]] constexpr CompletionFields operator|(CompletionFields a,
                                                   CompletionFields b) noexcept {
  return static_cast<CompletionFields>(static_cast<std::uint32_t>(a) |
                                       static_cast<std::uint32_t>(b));
}
/// True: `all` has each field of `wanted`.
[[nodiscard]] constexpr bool contains(CompletionFields all, CompletionFields wanted) noexcept {
  return (static_cast<std::uint32_t>(all) & static_cast<std::uint32_t>(wanted)) ==
         static_cast<std::uint32_t>(wanted);
}

/// "length|timestamp"; "none" for the empty set. Allocates.
[[nodiscard]] std::string to_string(CompletionFields fields);

/// The current completion of a poll. Fields that the queue was not created with are absent; after a
/// failure only `id()`, `status()` and `vendor_error()` are defined.
class ExtendedCompletion {
 public:
  /// The number that the caller gave with the request.
  [[nodiscard]] std::uint64_t id() const noexcept { return queue_->wr_id; }
  /// True: the operation succeeded.
  [[nodiscard]] bool ok() const noexcept { return queue_->status == IBV_WC_SUCCESS; }
  /// The result of the operation. Defined also after a failure.
  [[nodiscard]] CompletionStatus status() const noexcept;
  /// The operation. Only when ok().
  [[nodiscard]] Opcode opcode() const noexcept {
    return static_cast<Opcode>(queue_->read_opcode(queue_));
  }
  /// As Completion::vendor_error.
  [[nodiscard]] std::uint32_t vendor_error() const noexcept {
    return queue_->read_vendor_err(queue_);
  }
  /// As Completion::length_bytes.
  [[nodiscard]] std::optional<std::uint32_t> length_bytes() const noexcept {
    return read(CompletionFields::kLength, queue_->read_byte_len);
  }
  /// Host byte order; only on receives that carry one.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    if ((queue_->read_wc_flags(queue_) & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    const auto raw = read(CompletionFields::kImmediate, queue_->read_imm_data);
    return raw ? std::optional<std::uint32_t>{ntohl(*raw)} : std::nullopt;
  }
  /// The local queue pair.
  [[nodiscard]] std::optional<std::uint32_t> qp_number() const noexcept {
    return read(CompletionFields::kQueuePair, queue_->read_qp_num);
  }
  /// The sender of a datagram: its queue pair, LID and service level.
  [[nodiscard]] std::optional<std::uint32_t> source_qp() const noexcept {
    return read(CompletionFields::kSourceQueuePair, queue_->read_src_qp);
  }
  /// The LID of the sender.
  [[nodiscard]] std::optional<std::uint32_t> source_lid() const noexcept {
    return read(CompletionFields::kSourceLid, queue_->read_slid);
  }
  /// The service level of the datagram.
  [[nodiscard]] std::optional<std::uint8_t> service_level() const noexcept {
    return read(CompletionFields::kServiceLevel, queue_->read_sl);
  }
  /// Low bits of the port's LID that the sender named; 0 on Ethernet.
  [[nodiscard]] std::optional<std::uint8_t> path_bits() const noexcept {
    return read(CompletionFields::kPathBits, queue_->read_dlid_path_bits);
  }
  /// As Completion::has_route_header. Every queue with fields has it.
  [[nodiscard]] bool has_route_header() const noexcept {
    return (queue_->read_wc_flags(queue_) & IBV_WC_GRH) != 0;
  }
  /// The window's key that the peer's message has invalidated, host byte order.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const noexcept {
    if ((queue_->read_wc_flags(queue_) & IBV_WC_WITH_INV) == 0) return std::nullopt;
    const auto raw = read(CompletionFields::kImmediate, queue_->read_imm_data);
    return raw ? std::optional<std::uint32_t>{*raw} : std::nullopt;
  }
  /// In the units of Device::query_clock; ExtendedDeviceAttributes has its frequency.
  [[nodiscard]] std::optional<std::uint64_t> timestamp() const noexcept {
    return read(CompletionFields::kTimestamp, queue_->read_completion_ts);
  }
  /// Nanoseconds since the epoch, by the device's synchronised clock.
  [[nodiscard]] std::optional<std::uint64_t> wall_clock_ns() const noexcept {
    return read(CompletionFields::kWallClock, queue_->read_completion_wallclock_ns);
  }
  /// Only when !ok(). As Completion::error.
  [[nodiscard]] Error error() const noexcept;
  /// Borrowed: for fields that this class does not offer (ibv_wc_read_...).
  [[nodiscard]] ibv_cq_ex* raw() const noexcept { return queue_; }

 private:
  friend class ExtendedPoll;
  ExtendedCompletion(ibv_cq_ex* queue, CompletionFields fields) noexcept
      : queue_{queue}, fields_{fields} {}
  template <typename T>
  std::optional<T> read(CompletionFields field, T (*function)(ibv_cq_ex*)) const noexcept {
    if (!contains(fields_, field) || function == nullptr) return std::nullopt;
    return function(queue_);
  }
  ibv_cq_ex* queue_;
  CompletionFields fields_;
};
/// "write id 7 ok", "id 8 remote access error (vendor 0)".
std::ostream& operator<<(std::ostream& out, const ExtendedCompletion& completion);

/// See the top of this file. Move-only. Keeps the queue; empty when moved from.
class ExtendedPoll {
 public:
  /// Of one pass: an increment takes the next completion out of the queue, and ends the one before.
  class Iterator {
   public:
    using value_type = ExtendedCompletion;
    using difference_type = std::ptrdiff_t;
    /// The current completion, until the next increment.
    const ExtendedCompletion& operator*() const noexcept { return poll_->current_; }
    /// As operator*().
    const ExtendedCompletion* operator->() const noexcept { return &poll_->current_; }
    /// Takes the next completion out of the queue.
    Iterator& operator++() {
      poll_->advance();
      return *this;
    }
    /// The same; nothing of the former position is left to return.
    void operator++(int) { poll_->advance(); }
    /// True: the queue has no further completion, or the poll failed.
    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
      return it.poll_->empty();
    }

   private:
    friend class ExtendedPoll;
    explicit Iterator(ExtendedPoll* poll) noexcept : poll_{poll} {}
    ExtendedPoll* poll_;
  };

  ExtendedPoll(ExtendedPoll&&) noexcept = default;
  ExtendedPoll& operator=(ExtendedPoll&&) noexcept = default;
  ~ExtendedPoll() = default;

  /// At the current completion: a poll has one pass.
  [[nodiscard]] Iterator begin() noexcept { return Iterator{this}; }
  /// Behind the last completion.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// Whether there is no further completion.
  [[nodiscard]] bool empty() const noexcept { return started_ == nullptr || !more_; }
  /// Why the range ended, if that was not the end of the queue. Errors: kProvider (errno kept).
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  friend class CompletionQueue;
  struct End {
    std::shared_ptr<detail::CompletionQueueState> owner;
    std::uint32_t made_in = remora::detail::this_process();
    void operator()(ibv_cq_ex* queue) const noexcept {
      if (made_in == remora::detail::this_process())
        queue->end_poll(queue);  // else it is a parent's
    }
  };
  using Owner = std::shared_ptr<detail::CompletionQueueState>;
  static Result<ExtendedPoll> start(ibv_cq_ex* queue, CompletionFields fields, Owner owner);
  ExtendedPoll(ibv_cq_ex* queue, CompletionFields fields, bool started, Owner owner) noexcept
      : current_{queue, fields}, started_{started ? queue : nullptr, End{std::move(owner)}} {}
  void advance();

  ExtendedCompletion current_;
  std::unique_ptr<ibv_cq_ex, End> started_;  ///< null: the queue was empty
  bool more_ = true;
  Status status_;
};

}  // namespace remora::verbs
