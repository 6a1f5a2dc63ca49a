#pragma once

/// A queue of operations on a volume.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/buffer.h>
#include <remora/engine/queue.h>
#include <remora/result.h>
#include <remora/volume/volume_queue.h>

#include "queue_entry_list.h"
#include "stripe_map.h"
#include "volume_lanes.h"
#include "volume_queue_entry.h"

namespace remora::volume::detail {

class VolumeCore;

/// See volume_queue.h. An operation within a stripe unit is given to the lane of its group when it
/// is taken. The parts of a longer one follow in submit(), and in the calls that collect
/// completions, as far as the lanes have room for parts.
class VolumeQueueCore {
 public:
  /// `volume` must outlive it: the queue of an application keeps it by `kept`. Errors:
  /// kInvalidArgument (depth), kOutOfMemory.
  static Result<std::unique_ptr<VolumeQueueCore>> create(VolumeCore& volume,
                                                         const QueueOptions& options,
                                                         std::shared_ptr<VolumeCore> kept = {});
  VolumeQueueCore(VolumeCore& volume, std::shared_ptr<VolumeCore> kept, VolumeLanes lanes,
                  std::size_t depth, std::chrono::nanoseconds deadline);

  /// A read into a Target, or a write from a Source. False: there is no room. In
  /// volume_queue_core.cc.
  template <typename Memory>
  Ticket take_transfer(ByteOffset at, const Memory& memory, std::uint64_t tag) noexcept;
  bool read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept;
  bool write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept;
  bool write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept;
  bool flush_visible(std::uint64_t tag) noexcept;
  bool compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                    std::uint64_t tag) noexcept;
  bool fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept;

  Status submit() noexcept;
  VolumeCompletions wait(std::size_t at_least) noexcept;
  Result<int> event_fd() noexcept;
  VolumeCompletions progress() noexcept;
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const noexcept;

  [[nodiscard]] const StripeMap& map() const noexcept { return map_; }
  [[nodiscard]] VolumeCore& volume() const noexcept { return volume_; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept { return deadline_; }
  [[nodiscard]] const VolumeQueueRoom& room() const noexcept { return room_; }

 private:
  using Entry = VolumeQueueEntry;
  /// A call that only one thread may be in.
  class Call {
   public:
    explicit Call(VolumeQueueCore& queue) noexcept
        : queue_{queue}, entered_{!queue.in_call_.exchange(true, std::memory_order_acquire)} {}
    ~Call() {
      if (entered_) queue_.in_call_.store(false, std::memory_order_release);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return entered_; }

   private:
    VolumeQueueCore& queue_;
    bool entered_;
  };

  // Taking: volume_queue_core.cc.
  [[nodiscard]] Entry& acquire(ByteOffset at, std::uint64_t length_bytes,
                               std::uint64_t tag) noexcept;
  // Not inlined, so that take_transfer() needs no stack.
  template <typename Memory>
  [[gnu::noinline]] Ticket take_on_other_region(Entry& entry, const Memory& memory,
                                                std::uint32_t group, ByteOffset at) noexcept;
  template <typename Memory>
  [[gnu::noinline]] Ticket take_long_or_refuse(Entry& entry, const Memory& memory) noexcept;
  template <typename Take>
  bool take_whole(Entry& entry, const Place& place, std::uint64_t lane_tag,
                  const Take& take) noexcept;
  template <typename Take>
  bool take_atomic(Operation operation, ByteOffset at, std::uint64_t tag,
                   const Take& take) noexcept;
  bool take_in_parts(Entry& entry, VolumeOperation kind) noexcept;
  bool refuse(Entry& entry, const Error& error) noexcept;
  /// Posts all that the lanes have taken, also before submit() is called for it.
  void submit_lanes() noexcept;
  /// Of a failed operation, or one in parts; collect() releases the others.
  void release(Entry& entry) noexcept {
    REMORA_ASSERT_HOT(room_.left < room_.depth, "each place of a queue is released once");
    entry.parts_left = 1;
    entry.failed = false;
    entry.all_posted = true;
    entry.next = free_;
    free_ = &entry;
    ++room_.left;
  }

  // Parts, completions: volume_queue_wait.cc.
  bool post_part(Entry& entry) noexcept;
  bool post_flush(Entry& entry) noexcept;
  void post_held() noexcept;
  void fail(Entry& entry, const Error& error, std::uint32_t group) noexcept;
  void end_part(VolumeLane& lane, const Completion& completion) noexcept;
  /// The operations that the present call can hand out.
  [[nodiscard]] std::size_t ended_count() const noexcept { return ready_count_ + ended_.count; }
  std::size_t collect(VolumeLane& lane, const Completions& found) noexcept;
  std::size_t collect_all(std::size_t goal) noexcept;
  void wait_for_any(std::size_t goal) noexcept;
  bool sleep() noexcept;
  VolumeCompletions hand_out_all() noexcept;

  const std::shared_ptr<VolumeCore> kept_;
  VolumeCore& volume_;
  const StripeMap map_;  ///< a copy: each operation reads it
  const std::chrono::nanoseconds deadline_;
  VolumeQueueRoom room_;
  std::vector<Entry> entries_;
  std::vector<Error> entry_errors_;  ///< of failed entries
  Entry* free_ = nullptr;
  QueueEntryList<Entry> held_taken_;  ///< in parts, before submit()
  QueueEntryList<Entry> held_;        ///< with parts to post
  QueueEntryList<Entry> ended_;       ///< those that failed, or had several parts
  std::size_t in_flight_ = 0;         ///< operations that were posted, and those of `held_`
  std::vector<VolumeCompletion> ready_;
  std::size_t ready_count_ = 0;  ///< in the present call
  std::vector<Error> ready_errors_;
  std::atomic<bool> in_call_{false};
  VolumeLanes lanes_;
};

}  // namespace remora::volume::detail
