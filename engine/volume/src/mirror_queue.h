#pragma once

/// A queue of operations on a mirror.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/engine/queue.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/volume_queue.h>

#include "event_set.h"
#include "mirror_parts.h"
#include "mirror_queue_entry.h"
#include "queue_entry_list.h"

namespace remora::volume::detail {

class MirrorVolume;
class VolumeCore;

/// See volume_queue.h. An operation on a mirror waits several times: for a mark, the backups, the
/// primary, a configuration that changes. So threads of the queue carry operations out: at most
/// kThreadsMax, each with up to MemberLane::kOperationsMax parts of one group in flight. An
/// operation that overlaps an earlier one waits until that has ended, unless both read.
///
/// One lock for the operations of a queue, held to take parts and to end them: a thread takes and
/// ends many at once, and each of them waits for servers twice.
class MirrorQueue {
 public:
  /// An operation is compared with each one in flight when it is submitted.
  static constexpr std::size_t kDepthMax = 1024;
  static constexpr std::size_t kThreadsMax = 8;

  /// Errors: kInvalidArgument (depth), kOutOfMemory, kSystem with Reason::kNoThread.
  static Result<std::unique_ptr<MirrorQueue>> create(std::shared_ptr<VolumeCore> volume,
                                                     const QueueOptions& options);
  MirrorQueue(std::shared_ptr<VolumeCore> volume, std::size_t depth,
              std::chrono::nanoseconds deadline);
  /// Waits for the operations in flight.
  ~MirrorQueue();
  MirrorQueue(const MirrorQueue&) = delete;
  MirrorQueue& operator=(const MirrorQueue&) = delete;

  bool read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept;
  bool write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept;
  bool write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept;
  /// An acknowledged write is visible to every reader already: it ends with submit().
  bool flush_visible(std::uint64_t tag) noexcept;
  bool compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                    std::uint64_t tag) noexcept;
  bool fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept;

  Status submit() noexcept;
  VolumeCompletions wait(std::size_t at_least) noexcept;
  Result<int> event_fd() noexcept;
  VolumeCompletions progress() noexcept;
  /// Its threads end what has passed its deadline; what has ended waits to be handed out now.
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const noexcept;

  [[nodiscard]] const VolumeQueueRoom& room() const noexcept { return room_; }
  [[nodiscard]] VolumeCore& volume() const noexcept { return *volume_; }

 private:
  using Entry = MirrorQueueEntry;

  // The owner: mirror_queue.cc.
  [[nodiscard]] Entry& acquire(VolumeOperation kind, ByteOffset at, std::uint64_t length_bytes,
                               std::uint64_t tag) noexcept;
  /// Takes the operation, if `check()` does not refuse it.
  template <typename Check>
  bool take(Entry& entry, const Check& check) noexcept;
  void begin(Entry& entry) noexcept REMORA_REQUIRES(mutex_);
  Status add_thread();
  VolumeCompletions hand_out() noexcept REMORA_REQUIRES(mutex_);

  // Its threads: mirror_queue_work.cc.
  void work() noexcept;
  void take_parts(MirrorParts& parts) noexcept REMORA_REQUIRES(mutex_);
  void carry_out(MirrorParts& parts) noexcept;
  void change_word(Entry& entry, GroupOperation& operation);
  void name_failures(MirrorParts& parts) const;
  void end_parts(MirrorParts& parts) noexcept REMORA_REQUIRES(mutex_);
  void end(Entry& entry) noexcept REMORA_REQUIRES(mutex_);
  void tell() noexcept REMORA_REQUIRES(mutex_);

  const std::shared_ptr<VolumeCore> volume_;
  MirrorVolume& mirror_;
  const std::chrono::nanoseconds deadline_;
  // Of the owner:
  VolumeQueueRoom room_;
  std::vector<Entry> entries_;
  QueueEntryList<Entry> free_;
  QueueEntryList<Entry> taken_;  ///< before submit()
  std::vector<VolumeCompletion> ready_;
  std::vector<Error> ready_errors_;
  std::vector<std::thread> threads_;
  remora::detail::Mutex calling_;  ///< held by the thread that is in a call
  // Of all:
  mutable remora::detail::Mutex mutex_;
  remora::detail::Condition work_;                     ///< runnable_, stopped_
  remora::detail::Condition done_;                     ///< ended_
  Entry* newest_ REMORA_GUARDED_BY(mutex_) = nullptr;  ///< submitted and not ended
  std::size_t in_flight_ REMORA_GUARDED_BY(mutex_) = 0;
  QueueEntryList<Entry> runnable_ REMORA_GUARDED_BY(mutex_);  ///< with parts to take
  QueueEntryList<Entry> ended_ REMORA_GUARDED_BY(mutex_);
  std::size_t goal_ REMORA_GUARDED_BY(mutex_) = 0;  ///< ended operations that the owner waits for
  bool stopped_ REMORA_GUARDED_BY(mutex_) = false;
  std::unique_ptr<EventSet> events_ REMORA_GUARDED_BY(mutex_);  ///< null: event_fd() was not called
};

}  // namespace remora::volume::detail
