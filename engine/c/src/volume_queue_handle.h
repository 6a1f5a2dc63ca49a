#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <remora/c/queue.h>
#include <remora/owned.h>
#include <remora/result.h>
#include <remora/volume/volume_queue.h>

#include "call.h"
#include "collecting.h"
#include "handle.h"

namespace remora::c {

/// The object behind a remora_queue that remora_volume_queue_create() has made. The functions of
/// queue.h come to it where a handle is no queue of a region: queues of regions pay nothing for it.
///
/// Takes and hands out operations without allocation, unless one fails.
class VolumeQueueHandle : public Handle {
 public:
  static constexpr auto kKind = Kind::kVolumeQueue;
  static constexpr Operation kName{"remora_queue"};
  enum class Look : std::uint8_t { kWait, kPoll, kProgress };

  /// Throws std::bad_alloc.
  explicit VolumeQueueHandle(volume::VolumeQueue&& made);

  /// Null: `queue` is not the queue of a volume.
  [[nodiscard]] static VolumeQueueHandle* of(const remora_queue* queue) noexcept;
  [[nodiscard]] remora_queue* pointer() noexcept {
    return reinterpret_cast<remora_queue*>(static_cast<Handle*>(this));
  }
  /// For functions that such a queue does not have.
  [[nodiscard]] static Error lacks(Operation operation) noexcept {
    return Error{Code::kUnsupported, operation}.with_subject("the queue of a volume");
  }

  /// `give` gives an operation to the queue, with the tag that it gets. Returns the ticket; 0:
  /// nothing was taken.
  template <typename Give>
  std::uint64_t take(std::uint64_t tag, const Give& give) noexcept {
    if (free_.empty()) return 0;
    const std::uint32_t place = free_.back();
    if (!give(queue_, place)) return 0;
    free_.pop_back();
    entries_[place] = {.tag = tag, .ticket = ++last_ticket_};
    return last_ticket_;
  }
  Status submit(Operation operation) noexcept;
  /// The rest of a call of remora_queue_wait(), _poll() or _progress().
  int collect(Call& call, Look look, std::size_t at_least, remora_completion* completions,
              std::size_t capacity, std::size_t* count) noexcept;
  /// Null: the last call has not returned this completion as a failed one.
  [[nodiscard]] const Error* error_of(const remora_completion& completion) const noexcept;

  [[nodiscard]] Result<int> event_fd() noexcept { return queue_.event_fd(); }
  [[nodiscard]] std::uint64_t next_deadline() const noexcept {
    return monotonic_ns(queue_.next_deadline());
  }
  [[nodiscard]] std::size_t depth() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t room() const noexcept { return free_.size(); }

 private:
  /// The caller's words of an operation.
  struct Entry {
    std::uint64_t tag = 0;
    std::uint64_t ticket = 0;
  };
  struct Failed {
    std::uint64_t ticket;
    Error error;
  };

  [[nodiscard]] volume::VolumeCompletions look(Look how, std::size_t at_least) noexcept;
  /// Returns their number.
  std::size_t hand_over_found(remora_completion* to, std::size_t capacity) noexcept;
  [[gnu::cold]] void put_error(const Error& error, remora_completion& to) noexcept;

  volume::VolumeQueue queue_;
  std::uint32_t made_in_ = remora::detail::made_here();
  std::atomic<bool> collecting_ = false;
  std::uint64_t last_ticket_ = 0;
  std::vector<Entry> entries_;       ///< by the tag that the queue has
  std::vector<std::uint32_t> free_;  ///< the indices of the entries that are not used
  /// Completions that a wait has found and the caller's array had no room for.
  volume::VolumeCompletions found_{};
  std::vector<Failed> failed_;  ///< of the last call
};

}  // namespace remora::c
