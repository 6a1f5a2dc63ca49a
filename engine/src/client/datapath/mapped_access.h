#pragma once

/// Marks the threads that access mapped memory of a grant. Over shm the thread that submits a
/// transfer copies the bytes, and the server cannot unmap the memory from the client. So a
/// revocation waits until no thread is between its check of the grant and the end of its copy, even
/// if that thread gets no processor for a long time.
///
/// A thread marks its access in its own cache line, by two plain stores. The revocation, which is
/// rare, pays for the order between these stores and the check: see accessed(). In a child of
/// fork(2) no thread of the parent accesses anything.

#include <atomic>
#include <cstdint>

namespace remora::detail {

/// The mark of the calling thread, from construction to destruction. A local object: a thread has
/// at most one of them at a time.
class MappedAccess {
 public:
  /// Stands for every grant, in place of a serial.
  static constexpr std::uint64_t kEveryGrant = ~std::uint64_t{0};

  /// From here on a revocation of the grant waits for this thread. The thread then checks that the
  /// grant is not revoked, and accesses the memory. `serial`: see RevocableGrant::serial().
  explicit MappedAccess(std::uint64_t serial) noexcept : place_{t_place} {
    if (place_ == nullptr) [[unlikely]]
      place_ = acquire_place();
    place_->serial.store(serial, std::memory_order_relaxed);
    // Keeps the compiler from moving the check before the store. accessed() orders them on the
    // processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~MappedAccess() { place_->serial.store(0, std::memory_order_release); }
  MappedAccess(const MappedAccess&) = delete;
  MappedAccess& operator=(const MappedAccess&) = delete;

  /// Ends the access of this thread, if there is one, before the object is destroyed.
  static void end_early() noexcept {
    if (t_place != nullptr) t_place->serial.store(0, std::memory_order_release);
  }

  /// Whether a thread accesses the grant with this serial, after its revocation. False: no thread
  /// does, and the bytes that threads have written are visible to the caller. Makes a system call.
  ///
  /// Call it at least some hundred microseconds after the revocation: on kernels without
  /// membarrier(2), the stores of other threads have become visible by then.
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
