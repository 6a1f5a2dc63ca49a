#pragma once

/// The threads that access mapped memory of a grant. Over shm the thread that submits a transfer
/// copies the bytes, and the server cannot take the mapping back: a revocation has to wait until no
/// thread is between its check of the grant and the end of its copy, however long that thread has
/// no processor.
///
/// A thread says so in a cache line of its own, with two plain stores; the revocation, which is
/// rare, bears the cost of the order between them and the check: see accessed(). In a child of
/// fork(2) no thread of the parent accesses anything.

#include <atomic>
#include <cstdint>

namespace remora::detail {

/// One thread at a time has one of these at most.
class MappedAccess {
 public:
  /// In place of the serial of a grant: of every grant.
  static constexpr std::uint64_t kEveryGrant = ~std::uint64_t{0};

  /// From here on a revocation of the grant waits for this thread. Afterwards the thread checks
  /// that the grant is not revoked, and then accesses the memory. `serial`: RevocableGrant's.
  explicit MappedAccess(std::uint64_t serial) noexcept : place_{t_place} {
    if (place_ == nullptr) [[unlikely]]
      place_ = acquire_place();
    place_->serial.store(serial, std::memory_order_relaxed);
    // The check comes after the store, as far as the compiler is concerned. accessed() sees to the
    // processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~MappedAccess() { place_->serial.store(0, std::memory_order_release); }
  MappedAccess(const MappedAccess&) = delete;
  MappedAccess& operator=(const MappedAccess&) = delete;

  /// Ends the access of this thread, if it has one, before its scope ends.
  static void end_early() noexcept {
    if (t_place != nullptr) t_place->serial.store(0, std::memory_order_release);
  }

  /// Whether a thread accesses the grant of that serial, after it was revoked. False: none does,
  /// and what they have written is visible to the caller. Makes a system call.
  ///
  /// Call it no sooner than some hundred microseconds after the revocation: on kernels without
  /// membarrier(2), a store of another thread has left its processor by then.
  [[nodiscard]] static bool accessed(std::uint64_t serial) noexcept;

 private:
  friend struct MappedAccessPlaces;
  struct alignas(64) Place {
    std::atomic<std::uint64_t> serial{0};  ///< 0: the thread accesses nothing
    std::atomic<bool> taken{false};
  };
  static Place* acquire_place() noexcept;

  inline static constinit thread_local Place* t_place = nullptr;
  Place* place_;
};

}  // namespace remora::detail
