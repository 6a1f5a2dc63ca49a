#pragma once

/// Batch: a chain of work requests, handed to the NIC by one call.
///
/// A batch fills a preallocated array (its storage) and `post()` makes exactly one
/// `ibv_post_send`: one doorbell, no allocation. It is reusable: after `post()` it is empty.
///
/// Misuse (an invalid slice, a misaligned atomic, too many requests, too much inline data) is
/// recorded and returned by `post()`, which then posts nothing.
///
/// Requests are signaled unless `.unsignaled()` is called. Bytes named by a request belong to the
/// NIC until that request, or a later signaled request of the same queue pair, has completed;
/// inline bytes only until `post()` returns.
///
/// Thread safety: a batch and its storage are for one thread at a time; batches with different
/// storages on one queue pair may be posted concurrently.
/// Source: ibv_post_send(3).

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <span>

#include <remora/result.h>
#include <remora/verbs/address_handle.h>
#include <remora/verbs/chain.h>
#include <remora/verbs/memory_window.h>
#include <remora/verbs/receive_batch.h>
#include <remora/verbs/send_chain.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

template <Transport T>
class QueuePair;

/// A chain being built on one queue pair. Made by `QueuePair::start`. Dropping it posts nothing. It
/// may outlive queue pair and storage only while it is empty, as it is after `post()`.
///
/// Besides the requests below it has the members of detail::SendChain: Request, which each of them
/// returns; size(), full(), post(), taken().
template <Transport T>
class Batch : public detail::SendChain {
 public:
  /// A message; it uses one receive of the peer.
  Request send(std::uint64_t id, const LocalSlice& local) requires(T::kConnected) {
    return Request{this, &add(id, IBV_WR_SEND, local)};
  }
  /// Gathers `local`, in order. At most QueuePairCapabilities::send_sge slices.
  Request send(std::uint64_t id, std::span<const LocalSlice> local) requires(T::kConnected) {
    return Request{this, &add(id, IBV_WR_SEND, local)};
  }
  /// `immediate` in host byte order.
  Request send_with_immediate(std::uint64_t id, const LocalSlice& local,
                              std::uint32_t immediate) requires(T::kConnected) {
    return Request{this, &set_immediate(add(id, IBV_WR_SEND_WITH_IMM, local), immediate)};
  }
  /// Gathers `local`, in order; `immediate` in host byte order.
  Request send_with_immediate(std::uint64_t id, std::span<const LocalSlice> local,
                              std::uint32_t immediate) requires(T::kConnected) {
    return Request{this, &set_immediate(add(id, IBV_WR_SEND_WITH_IMM, local), immediate)};
  }
  /// A message of unregistered bytes, at most QueuePairCapabilities::inline_bytes: see
  /// Request::inlined().
  Request send_inline(std::uint64_t id, std::span<const std::byte> bytes) requires(T::kConnected) {
    return send(id, borrow(bytes)).inlined();
  }
  /// The pieces one after the other. At most as many as the storage has slices for each request.
  Request send_inline(std::uint64_t id, std::span<const std::span<const std::byte>> pieces)  //
      requires(T::kConnected) {
    return Request{this, &add(id, IBV_WR_SEND, pieces)}.inlined();
  }
  /// Unregistered bytes with an immediate.
  Request send_inline_with_immediate(std::uint64_t id, std::span<const std::byte> bytes,
                                     std::uint32_t immediate) requires(T::kConnected) {
    return send_with_immediate(id, borrow(bytes), immediate).inlined();
  }
  /// The pieces one after the other, with an immediate.
  Request send_inline_with_immediate(std::uint64_t id,
                                     std::span<const std::span<const std::byte>> pieces,
                                     std::uint32_t immediate) requires(T::kConnected) {
    return Request{this, &set_immediate(add(id, IBV_WR_SEND_WITH_IMM, pieces), immediate)}
        .inlined();
  }
  /// A message that invalidates `rkey`, the key of a window of the peer, when it arrives.
  Request send_with_invalidate(std::uint64_t id, const LocalSlice& local,
                               std::uint32_t rkey) requires(T::kConnected) {
    ibv_send_wr& wr = add(id, IBV_WR_SEND_WITH_INV, local);
    wr.invalidate_rkey = rkey;
    return Request{this, &wr};
  }

  /// A datagram: at most one path MTU, to a queue pair of the peer, which may drop it.
  Request send(std::uint64_t id, const LocalSlice& local,
               const DatagramPeer& to) requires(!T::kConnected) {
    return Request{this, &set_peer(add(id, IBV_WR_SEND, local), to)};
  }
  /// Gathers `local`, in order, into one datagram.
  Request send(std::uint64_t id, std::span<const LocalSlice> local,
               const DatagramPeer& to) requires(!T::kConnected) {
    return Request{this, &set_peer(add(id, IBV_WR_SEND, local), to)};
  }
  /// A datagram with `immediate`, in host byte order.
  Request send_with_immediate(std::uint64_t id, const LocalSlice& local, std::uint32_t immediate,
                              const DatagramPeer& to) requires(!T::kConnected) {
    ibv_send_wr& wr = set_immediate(add(id, IBV_WR_SEND_WITH_IMM, local), immediate);
    return Request{this, &set_peer(wr, to)};
  }
  /// Gathers `local`, in order, into one datagram with `immediate`.
  Request send_with_immediate(std::uint64_t id, std::span<const LocalSlice> local,
                              std::uint32_t immediate,
                              const DatagramPeer& to) requires(!T::kConnected) {
    ibv_send_wr& wr = set_immediate(add(id, IBV_WR_SEND_WITH_IMM, local), immediate);
    return Request{this, &set_peer(wr, to)};
  }
  /// A datagram of unregistered bytes: see Request::inlined().
  Request send_inline(std::uint64_t id, std::span<const std::byte> bytes,
                      const DatagramPeer& to) requires(!T::kConnected) {
    return send(id, borrow(bytes), to).inlined();
  }
  /// The pieces one after the other, as one datagram.
  Request send_inline(std::uint64_t id, std::span<const std::span<const std::byte>> pieces,
                      const DatagramPeer& to) requires(!T::kConnected) {
    return Request{this, &set_peer(add(id, IBV_WR_SEND, pieces), to)}.inlined();
  }
  /// A datagram of unregistered bytes with an immediate.
  Request send_inline_with_immediate(std::uint64_t id, std::span<const std::byte> bytes,
                                     std::uint32_t immediate,
                                     const DatagramPeer& to) requires(!T::kConnected) {
    return send_with_immediate(id, borrow(bytes), immediate, to).inlined();
  }
  /// The pieces one after the other, as one datagram with an immediate.
  Request send_inline_with_immediate(std::uint64_t id,
                                     std::span<const std::span<const std::byte>> pieces,
                                     std::uint32_t immediate,
                                     const DatagramPeer& to) requires(!T::kConnected) {
    ibv_send_wr& wr = set_immediate(add(id, IBV_WR_SEND_WITH_IMM, pieces), immediate);
    return Request{this, &set_peer(wr, to)}.inlined();
  }

  /// One-sided: the peer's CPU takes no part. `remote` must be at least as long as `local`.
  Request write(std::uint64_t id, const LocalSlice& local,
                const RemoteSlice& remote) requires(T::kWrites) {
    return Request{this, &add(id, IBV_WR_RDMA_WRITE, local, remote)};
  }
  /// Gathers `local`, in order. `remote` must be at least as long as all of it.
  Request write(std::uint64_t id, std::span<const LocalSlice> local,
                const RemoteSlice& remote) requires(T::kWrites) {
    return Request{this, &add(id, IBV_WR_RDMA_WRITE, local, remote)};
  }
  /// Uses one receive of the peer, whose completion has `immediate` and the length.
  Request write_with_immediate(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                               std::uint32_t immediate) requires(T::kWrites) {
    ibv_send_wr& wr = add(id, IBV_WR_RDMA_WRITE_WITH_IMM, local, remote);
    return Request{this, &set_immediate(wr, immediate)};
  }
  /// Gathers `local`, in order; else as above.
  Request write_with_immediate(std::uint64_t id, std::span<const LocalSlice> local,
                               const RemoteSlice& remote,
                               std::uint32_t immediate) requires(T::kWrites) {
    ibv_send_wr& wr = add(id, IBV_WR_RDMA_WRITE_WITH_IMM, local, remote);
    return Request{this, &set_immediate(wr, immediate)};
  }
  /// A write of unregistered bytes, at most QueuePairCapabilities::inline_bytes: see
  /// Request::inlined().
  Request write_inline(std::uint64_t id, std::span<const std::byte> bytes,
                       const RemoteSlice& remote) requires(T::kWrites) {
    return write(id, borrow(bytes), remote).inlined();
  }
  /// The pieces one after the other, at most as many as the storage has slices for each request.
  Request write_inline(std::uint64_t id, std::span<const std::span<const std::byte>> pieces,
                       const RemoteSlice& remote) requires(T::kWrites) {
    return Request{this, &add(id, IBV_WR_RDMA_WRITE, pieces, remote)}.inlined();
  }
  /// Unregistered bytes with an immediate.
  Request write_inline_with_immediate(std::uint64_t id, std::span<const std::byte> bytes,
                                      const RemoteSlice& remote,
                                      std::uint32_t immediate) requires(T::kWrites) {
    return write_with_immediate(id, borrow(bytes), remote, immediate).inlined();
  }
  /// The pieces one after the other, with an immediate.
  Request write_inline_with_immediate(std::uint64_t id,
                                      std::span<const std::span<const std::byte>> pieces,
                                      const RemoteSlice& remote,
                                      std::uint32_t immediate) requires(T::kWrites) {
    ibv_send_wr& wr = add(id, IBV_WR_RDMA_WRITE_WITH_IMM, pieces, remote);
    return Request{this, &set_immediate(wr, immediate)}.inlined();
  }

  /// One-sided. `local` must allow kLocalWrite.
  Request read(std::uint64_t id, const LocalSlice& local,
               const RemoteSlice& remote) requires(T::kReads) {
    return Request{this, &add(id, IBV_WR_RDMA_READ, local, remote)};
  }
  /// Scatters into `local`, in order.
  Request read(std::uint64_t id, std::span<const LocalSlice> local,
               const RemoteSlice& remote) requires(T::kReads) {
    return Request{this, &add(id, IBV_WR_RDMA_READ, local, remote)};
  }

  /// Atomically: if the 8 bytes at `remote` equal `expected`, they become `desired`. The former
  /// value is written to `local` (8 bytes, host byte order). `remote` must be aligned to 8.
  Request compare_swap(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                       std::uint64_t expected, std::uint64_t desired) requires(T::kAtomics) {
    ibv_send_wr& wr = add(id, IBV_WR_ATOMIC_CMP_AND_SWP, local);
    set_atomic(wr, local, remote, expected);
    wr.wr.atomic.swap = desired;
    return Request{this, &wr};
  }
  /// Atomically adds `addend` to the 8 bytes at `remote`, and wraps at 2^64. The former value is
  /// written to `local`, as by compare_swap(). `remote` must be aligned to 8.
  Request fetch_add(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                    std::uint64_t addend) requires(T::kAtomics) {
    ibv_send_wr& wr = add(id, IBV_WR_ATOMIC_FETCH_AND_ADD, local);
    set_atomic(wr, local, remote, addend);
    return Request{this, &wr};
  }

  /// Allows the peer to use `length_bytes` of `region` from `offset_bytes` by `window.remote()`,
  /// once this request has completed. The window must be of this queue pair, the region registered
  /// with kWindowBind. An earlier bind of the window ends. Takes locks: not for the fast path.
  Request bind_window(std::uint64_t id, MemoryWindow& window, const MemoryRegion& region,
                      std::uint64_t offset_bytes, std::uint64_t length_bytes,
                      Access rights) requires(T::kConnected) {
    ibv_send_wr& wr = add(id, IBV_WR_BIND_MW, LocalSlice{});
    note(window.bind(pair_, region, offset_bytes, length_bytes, rights, wr));
    return Request{this, &wr};
  }
  /// Invalidates the window's key. The window may be bound again.
  Request invalidate(std::uint64_t id, const MemoryWindow& window) requires(T::kConnected) {
    ibv_send_wr& wr = add(id, IBV_WR_LOCAL_INV, LocalSlice{});
    note(window.invalidate(pair_, wr));
    return Request{this, &wr};
  }

 private:
  friend class QueuePair<T>;

  Batch(ibv_qp* pair, PostSend function, std::uint32_t inline_bytes, BatchStorage& storage) noexcept
      : SendChain{pair, function, inline_bytes, storage.chain_.get()} {}
};

}  // namespace remora::verbs
