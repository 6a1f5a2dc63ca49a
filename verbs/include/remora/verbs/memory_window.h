#pragma once

/// MemoryWindow (type 2): a part of a registration that a peer may use for a while.
///
/// Made by `QueuePair::allocate_window`, bound and invalidated by requests of that queue pair's
/// batches: `bind_window`, `invalidate`, or the peer's `send_with_invalidate`. A window's key works
/// on its own queue pair only.
///
/// A window is freed before its queue pair and before each registration to which it was ever bound,
/// whichever is destroyed first: then `freed()` is true. It may be destroyed at any time, in any
/// state, also while a peer writes, which ends the peer's right; but neither the window nor the
/// registration may be destroyed while a batch that is not posted names it. A bind advances
/// `rkey()` when it is put into the batch, before the post.
///
/// On Soft-RoCE (Linux 6.1) a window does not restrict the range: the device checks the
/// registration's range, not the window's. Do not rely on windows there to keep peers apart.
///
/// Thread safety: one thread at a time for each window; distinct windows concurrently. Source:
/// ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3).

#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <ostream>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

template <Transport T>
class Batch;

namespace detail {
struct WindowRecord;
class QueuePairCore;
}  // namespace detail

/// See the top of this file. Move-only; one thread at a time.
class MemoryWindow {
 public:
  MemoryWindow(MemoryWindow&&) noexcept;
  MemoryWindow& operator=(MemoryWindow&&) noexcept;
  ~MemoryWindow();

  /// Ends the peer's right, as the destructor does, and returns the outcome; idempotent. Errors:
  /// kProvider: the key may still work, until the queue pair is moved to its error state.
  Status free() noexcept;
  /// Whether the window is gone, by free(), with its queue pair or with its registration: every use
  /// is refused with kClosed.
  [[nodiscard]] bool freed() const noexcept;
  /// The key of the last bind that was put into a batch; valid once that bind has completed.
  [[nodiscard]] std::uint32_t rkey() const noexcept { return rkey_; }
  /// The key that the next bind gives the window.
  [[nodiscard]] std::uint32_t next_rkey() const noexcept { return ibv_inc_rkey(rkey_); }
  /// The next bind gives the window the key after next_rkey(): a device may allocate a window whose
  /// next key a peer still has from an earlier window. There are 256 keys.
  void skip_rkey() noexcept { rkey_ = next_rkey(); }
  /// The bytes of the last bind with its key, for the peer.
  [[nodiscard]] RemoteSlice remote() const noexcept { return {address_, length_bytes_, rkey_}; }
  /// Borrowed; null when freed.
  [[nodiscard]] ibv_mw* raw() const noexcept;

 private:
  template <Transport T>
  friend class Batch;
  friend class detail::QueuePairCore;
  explicit MemoryWindow(std::shared_ptr<detail::WindowRecord> record) noexcept;
  /// Fills `wr`. Errors: kOutOfRange, kInvalidArgument (another queue pair, a registration without
  /// kWindowBind), kClosed.
  [[nodiscard]] Status bind(const ibv_qp* pair, const MemoryRegion& region,
                            std::uint64_t offset_bytes, std::uint64_t length_bytes, Access rights,
                            ibv_send_wr& wr);
  [[nodiscard]] Status invalidate(const ibv_qp* pair, ibv_send_wr& wr) const;

  std::shared_ptr<detail::WindowRecord> record_;
  std::uint32_t rkey_ = 0;
  std::uint64_t address_ = 0;
  std::uint64_t length_bytes_ = 0;
};
/// "window of 64 bytes at 0x7f... rkey 5"; "freed window".
std::ostream& operator<<(std::ostream& out, const MemoryWindow& window);

}  // namespace remora::verbs
