#pragma once

/// MemoryMonitor: reports which mappings of this process change. Internal.
///
/// There is one in a process, since a range can be registered with only one userfaultfd. A
/// userfaultfd in write-protect mode, protecting nothing, reports munmap, mremap and madvise; the
/// call that changes a mapping waits until its report is read. The monitor's thread neither
/// allocates, frees nor locks: it makes the generation odd, reads, tells each subscriber, and makes
/// it even.
///
/// The result of a look-up at an even generation is true if afterwards quiet() answers true and the
/// generation is the same: a change that had begun before is either unread (not quiet), or being
/// reported (odd), or was reported after the look-up (another generation).

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::verbs::detail {

enum class MappingChange : std::uint8_t { kUnmap, kRemap, kRemove };

class MemoryMonitor {
 public:
  class Subscriber {
   public:
    virtual ~Subscriber() = default;
    /// Called on the monitor's thread: must not allocate, free or lock.
    virtual void changed(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept = 0;
    /// Called on another thread, after changes, without these restrictions.
    virtual void reap() noexcept = 0;
  };
  static constexpr std::size_t kSubscribersMax = 64;

  /// The monitor of the process, started and proven if there is none. Null if monitoring does not
  /// work, with `why` set.
  static std::shared_ptr<MemoryMonitor> instance(std::string& why);
  ~MemoryMonitor();
  MemoryMonitor(const MemoryMonitor&) = delete;
  MemoryMonitor& operator=(const MemoryMonitor&) = delete;

  [[nodiscard]] bool subscribe(Subscriber& subscriber);
  /// Returns when no call of the subscriber is in progress.
  void unsubscribe(Subscriber& subscriber);

  /// Reports changes of whole pages in [begin, end) from now on, until they are unmapped. False if
  /// changes of this mapping cannot be noticed.
  [[nodiscard]] bool watch(std::uintptr_t begin, std::uintptr_t end) noexcept;

  /// Has subscribers reap, on the thread for reaping.
  void wake_reaper() noexcept;

  /// Odd while changes are being reported.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.load(); }
  /// Whether no change waits to be read. One system call.
  [[nodiscard]] bool quiet() const noexcept;
  /// Whether changes after the even generation `since` touched [begin, end). Also true if that is
  /// not known any more. Called at an even generation.
  [[nodiscard]] bool changed_since(std::uint64_t since, std::uintptr_t begin,
                                   std::uintptr_t end) const noexcept;
  /// Whether pages of [begin, end) are being removed: MADV_DONTNEED is reported before the pages
  /// are removed, so a registration made meanwhile may hold them.
  [[nodiscard]] bool being_removed(std::uintptr_t begin, std::uintptr_t end) const noexcept;

  /// For tests: called on the monitor's thread before it reads.
  static std::atomic<void (*)()> before_read;
  /// For tests: the next instance() behaves as if userfaultfd failed with this errno.
  static std::atomic<int> refuse_errno;

 private:
  friend void follow_forks() noexcept;
  /// Called with the lock of all monitors.
  MemoryMonitor(int userfault, int maps, int stop, int wake) noexcept;
  /// In a forked child: a copy of the userfaultfd that stays open would make changes in the parent
  /// wait for a reader as long as the child lives.
  static void after_fork_in_child() noexcept;
  void close_descriptors() noexcept;
  void close_userfault() noexcept;
  Status start();
  void run() noexcept;
  void reap_loop() noexcept;
  bool read_changes() noexcept;
  void tell(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept;
  void remember(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept;

  struct Recent {
    std::atomic<std::uint64_t> generation{0};  ///< odd: of the pass that reported it
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
  };
  struct Removal {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<std::int64_t> at_ns{0};
  };
  static constexpr std::size_t kRecentMax = 64;
  static constexpr std::size_t kRemovalsMax = 256;

  MemoryMonitor* next_;  ///< in the list of monitors not destroyed yet
  int userfault_;        ///< -1: closed
  int maps_;
  int stop_;
  int wake_;
  alignas(64) std::atomic<std::uint64_t> generation_{0};
  alignas(64) std::array<std::atomic<Subscriber*>, kSubscribersMax> subscribers_{};
  std::array<Recent, kRecentMax> recent_;
  std::array<Removal, kRemovalsMax> removals_;
  std::atomic<std::int64_t> all_removed_ns_{0};  ///< more removals than kRemovalsMax at this time
  /// Used only by the monitor's thread.
  std::size_t recent_count_ = 0;
  std::size_t removal_count_ = 0;
  std::atomic<bool> stopping_{false};
  /// Held while subscribers_ changes and while subscribers reap; tell() reads subscribers_ without
  /// it.
  remora::detail::Mutex subscribing_;
  std::thread thread_;
  std::thread reaper_;
};

/// From the first call on, a child of fork(2) has none of its parent's monitors.
void follow_forks() noexcept;

}  // namespace remora::verbs::detail
