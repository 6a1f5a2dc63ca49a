#pragma once

/// Orders the operations of one writer that overlap.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::volume::detail {

/// For each zone the byte ranges in use, in the order of arrival: an operation begins when no
/// earlier one overlaps it. A range that is the whole zone is the zone's exclusive lock, so that
/// repair, clearing and rebuilding need no lock of another kind. Ranges of different zones share
/// nothing. Thread-safe; allocates nothing after it was made.
class ZoneLocks {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A range, in the memory of the operation that has it.
  struct Range {
    std::uint32_t zone = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool shared = false;  ///< reads overlap reads
    Range* previous = nullptr;
    Range* next = nullptr;
  };

  /// Holds a range until it is destroyed.
  class Hold {
   public:
    explicit Hold(ZoneLocks& locks) noexcept : locks_{locks} {}
    ~Hold() { release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    /// False: earlier ranges are still in use at `until`.
    [[nodiscard]] bool lock(std::uint32_t zone, std::uint64_t begin, std::uint64_t end, bool shared,
                            Time until) noexcept;
    [[nodiscard]] bool lock_zone(std::uint32_t zone, Time until) noexcept {
      return lock(zone, 0, UINT64_MAX, false, until);
    }
    void release() noexcept;

   private:
    ZoneLocks& locks_;
    Range range_{};
    bool held_ = false;
  };

  /// Errors: kOutOfMemory.
  static Result<std::unique_ptr<ZoneLocks>> create(std::uint32_t zones);

 private:
  struct Zone {
    remora::detail::Mutex mutex;
    remora::detail::Condition changed;
    Range* first REMORA_GUARDED_BY(mutex) = nullptr;
    Range* last REMORA_GUARDED_BY(mutex) = nullptr;
  };

  explicit ZoneLocks(std::unique_ptr<Zone[]> zones) noexcept : zones_{std::move(zones)} {}
  [[nodiscard]] bool lock(Range& range, Time until) noexcept;
  void unlock(Range& range) noexcept;
  static void append(Zone& zone, Range& range) noexcept REMORA_REQUIRES(zone.mutex);
  static void remove(Zone& zone, Range& range) noexcept REMORA_REQUIRES(zone.mutex);

  std::unique_ptr<Zone[]> zones_;
};

}  // namespace remora::volume::detail
