#pragma once

/// Batch: a chain of work requests, handed to the NIC by one call.
///
/// A batch fills a preallocated array (its storage) and `post()` makes exactly one
/// `ibv_post_send`: one doorbell, no allocation. It is reusable: after `post()` it is empty.
///
/// Misuse (an invalid slice, a misaligned atomic, too many requests, too much inline data) is
/// remembered and told by `post()`, which then posts nothing.
///
/// Requests are signaled unless `.unsignaled()` is said. Bytes named by a request belong to the NIC
/// until it, or a later signaled one of the same queue pair, has completed; inline bytes only until
/// `post()` returns.
///
/// Thread safety: a batch and its storage are for one thread at a time; batches with different
/// storages on one queue pair may be posted concurrently.
/// Source: ibv_post_send(3).

#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <span>
#include <utility>

#include <remora/result.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

template <Transport T>
class Batch;
template <Transport T>
class QueuePair;
class ReceiveBatch;

namespace detail {

/// The array behind a batch: requests already linked to each other and to their gather lists.
template <typename WorkRequest>
struct Chain {
  std::unique_ptr<WorkRequest[]> requests;  // capacity + 1: the last takes what does not fit
  std::unique_ptr<ibv_sge[]> elements;
  std::uint32_t capacity = 0;
  std::uint32_t elements_per_request = 0;
  const void* owner = nullptr;  // the batch that has requests in it

  static std::unique_ptr<Chain> allocate(std::uint32_t capacity,
                                         std::uint32_t elements_per_request) noexcept;
};
extern template struct Chain<ibv_send_wr>;
extern template struct Chain<ibv_recv_wr>;

/// What a batch remembers about the first misuse; told by post().
struct Misuse {
  Code code = Code::kInternal;
  std::uint32_t request_index = 0;
  std::uint64_t asked = 0;
  std::uint64_t allowed = 0;
  [[nodiscard]] Error error(bool receive) const;
};

/// The error of a post that returned `result`; `taken` of `count` requests went in.
[[nodiscard]] Error post_error(bool receive, int result, std::size_t taken, std::size_t count);

}  // namespace detail

/// Preallocated room for the requests of one batch at a time. Move-only; a batch that uses it
/// survives a move of it.
template <typename WorkRequest>
class ChainStorage {
 public:
  /// Room for `requests` requests (at least one) of up to `elements_per_request` slices each.
  /// Errors: kInvalidArgument (zero); kOutOfMemory.
  [[nodiscard]] static Result<ChainStorage> allocate(std::uint32_t requests,
                                                     std::uint32_t elements_per_request) {
    if (requests == 0 || elements_per_request == 0)
      return Error{Code::kInvalidArgument, "ChainStorage::allocate"};
    auto chain = detail::Chain<WorkRequest>::allocate(requests, elements_per_request);
    if (!chain) return Error{Code::kOutOfMemory, "ChainStorage::allocate"};
    return ChainStorage{std::move(chain)};
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return chain_->capacity; }

 private:
  template <Transport T>
  friend class Batch;
  friend class ReceiveBatch;
  explicit ChainStorage(std::unique_ptr<detail::Chain<WorkRequest>> chain) noexcept
      : chain_{std::move(chain)} {}
  std::unique_ptr<detail::Chain<WorkRequest>> chain_;
};
using BatchStorage = ChainStorage<ibv_send_wr>;
using ReceiveStorage = ChainStorage<ibv_recv_wr>;

/// A chain being built on one queue pair. Made by `QueuePair::start`. Dropping it posts nothing. It
/// may outlive queue pair and storage only while it is empty, as it is after `post()`.
template <Transport T>
class Batch {
 public:
  /// The request just added, to be modified before the next one is added.
  class Request {
   public:
    /// No completion when it succeeds. A later signaled one tells that it is done.
    Request& unsignaled() noexcept {
      wr_->send_flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
      return *this;
    }
    Request& signaled(bool on = true) noexcept {
      if (!on) return unsignaled();
      wr_->send_flags |= IBV_SEND_SIGNALED;
      return *this;
    }
    /// Waits for the reads and atomics before it on this queue pair.
    Request& fenced() noexcept {
      wr_->send_flags |= IBV_SEND_FENCE;
      return *this;
    }
    /// Wakes a peer that armed its queue for solicited completions only.
    Request& solicited() noexcept {
      wr_->send_flags |= IBV_SEND_SOLICITED;
      return *this;
    }
    /// Copies the bytes into the request when it is posted; they need no registration. At most
    /// `capabilities().inline_bytes`. Only for sends and writes.
    Request& inlined() noexcept {
      std::uint64_t total_bytes = 0;
      for (int i = 0; i < wr_->num_sge; ++i) total_bytes += wr_->sg_list[i].length;
      if (total_bytes > batch_->inline_bytes_ || wr_->opcode == IBV_WR_RDMA_READ ||
          wr_->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr_->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
          [[unlikely]]
        batch_->refuse(Code::kLimitExceeded, total_bytes, batch_->inline_bytes_);
      wr_->send_flags |= IBV_SEND_INLINE;
      return *this;
    }
    /// Borrowed until the batch is posted: for what this class does not offer.
    [[nodiscard]] ibv_send_wr& raw() noexcept { return *wr_; }

   private:
    friend class Batch;
    Request(Batch* batch, ibv_send_wr* wr) noexcept : batch_{batch}, wr_{wr} {}
    Batch* batch_;
    ibv_send_wr* wr_;
  };

  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() { release(); }

  /// A message; takes one receive of the peer.
  Request send(std::uint64_t id, const LocalSlice& local) {
    return Request{this, &add(id, IBV_WR_SEND, local)};
  }
  Request send(std::uint64_t id, std::span<const LocalSlice> local) {
    return Request{this, &add(id, IBV_WR_SEND, local)};
  }
  /// `immediate` in host byte order.
  Request send_with_immediate(std::uint64_t id, const LocalSlice& local, std::uint32_t immediate) {
    ibv_send_wr& wr = add(id, IBV_WR_SEND_WITH_IMM, local);
    wr.imm_data = htonl(immediate);
    return Request{this, &wr};
  }
  Request send_inline(std::uint64_t id, std::span<const std::byte> bytes) {
    return send(id, borrow(bytes)).inlined();
  }

  /// One-sided: the peer's CPU takes no part. `remote` must be at least as long as `local`.
  Request write(std::uint64_t id, const LocalSlice& local,
                const RemoteSlice& remote) requires(T::kWrites) {
    return Request{this,
                   &set_remote(add(id, IBV_WR_RDMA_WRITE, local), local.length_bytes(), remote)};
  }
  Request write(std::uint64_t id, std::span<const LocalSlice> local,
                const RemoteSlice& remote) requires(T::kWrites) {
    return Request{this, &set_remote(add(id, IBV_WR_RDMA_WRITE, local), total(local), remote)};
  }
  /// Takes one receive of the peer, whose completion tells `immediate` and the length.
  Request write_with_immediate(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                               std::uint32_t immediate) requires(T::kWrites) {
    ibv_send_wr& wr =
        set_remote(add(id, IBV_WR_RDMA_WRITE_WITH_IMM, local), local.length_bytes(), remote);
    wr.imm_data = htonl(immediate);
    return Request{this, &wr};
  }
  Request write_inline(std::uint64_t id, std::span<const std::byte> bytes,
                       const RemoteSlice& remote) requires(T::kWrites) {
    return write(id, borrow(bytes), remote).inlined();
  }

  /// One-sided. `local` must allow kLocalWrite.
  Request read(std::uint64_t id, const LocalSlice& local,
               const RemoteSlice& remote) requires(T::kReads) {
    return Request{this,
                   &set_remote(add(id, IBV_WR_RDMA_READ, local), local.length_bytes(), remote)};
  }
  /// Scatters into `local`, in order.
  Request read(std::uint64_t id, std::span<const LocalSlice> local,
               const RemoteSlice& remote) requires(T::kReads) {
    return Request{this, &set_remote(add(id, IBV_WR_RDMA_READ, local), total(local), remote)};
  }

  /// Atomically: if the 8 bytes at `remote` equal `expected`, they become `desired`. What was there
  /// comes into `local` (8 bytes, host byte order). `remote` must be aligned to 8.
  Request compare_swap(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                       std::uint64_t expected, std::uint64_t desired) requires(T::kAtomics) {
    ibv_send_wr& wr = add(id, IBV_WR_ATOMIC_CMP_AND_SWP, local);
    set_atomic(wr, local, remote, expected);
    wr.wr.atomic.swap = desired;
    return Request{this, &wr};
  }
  /// Atomically adds to the 8 bytes at `remote`; what was there before comes into `local`.
  Request fetch_add(std::uint64_t id, const LocalSlice& local, const RemoteSlice& remote,
                    std::uint64_t addend) requires(T::kAtomics) {
    ibv_send_wr& wr = add(id, IBV_WR_ATOMIC_FETCH_AND_ADD, local);
    set_atomic(wr, local, remote, addend);
    return Request{this, &wr};
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  [[nodiscard]] bool full() const noexcept { return count_ == chain_->capacity; }

  /// Hands the chain over; nothing to do for an empty one. The batch is empty afterwards, whatever
  /// happened. After a failure the first `taken()` requests are with the NIC and will complete.
  ///
  /// Errors, misuse (nothing posted; the subject names the request by its index): kOutOfRange (an
  /// invalid slice, or more local than remote bytes); kMisaligned (an atomic); kInvalidArgument
  /// (an atomic not of 8 bytes); kLimitExceeded (requests, slices, inline bytes); kBusy (another
  /// batch has unposted requests in the storage). Errors, provider: kWouldBlock (ENOMEM: the send
  /// queue is full) and kProvider, with asked() the length of the chain and allowed() equal to
  /// taken().
  Status post() {
    if (refused_) [[unlikely]]
      return drop();
    if (count_ == 0) return {};
    ibv_send_wr* const requests = chain_->requests.get();
    ibv_send_wr& last = requests[count_ - 1];
    last.next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int result = post_(pair_, requests, &bad);
    last.next = &last + 1;
    const std::uint32_t count = count_;
    release();
    taken_ = count;
    if (result == 0) [[likely]]
      return {};
    taken_ = bad == nullptr ? 0 : static_cast<std::uint32_t>(bad - requests);
    return detail::post_error(false, result, taken_, count);
  }
  /// How many requests the last post() handed over.
  [[nodiscard]] std::uint32_t taken() const noexcept { return taken_; }

 private:
  friend class QueuePair<T>;
  using PostSend = int (*)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);

  Batch(ibv_qp* pair, PostSend function, std::uint32_t inline_bytes, BatchStorage& storage) noexcept
      : pair_{pair}, post_{function}, chain_{storage.chain_.get()}, inline_bytes_{inline_bytes} {}

  static LocalSlice borrow(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() >= UINT32_MAX) return LocalSlice::invalid();
    return LocalSlice::unchecked(reinterpret_cast<std::uintptr_t>(bytes.data()),
                                 static_cast<std::uint32_t>(bytes.size()), 0);
  }
  static std::uint64_t total(std::span<const LocalSlice> slices) noexcept {
    std::uint64_t sum = 0;
    for (const LocalSlice& slice : slices) sum += slice.length_bytes();
    return sum;
  }

  ibv_send_wr& next() noexcept {
    if (count_ == limit_) [[unlikely]]
      return first_or_refused();
    return chain_->requests[count_++];
  }
  // The first request takes the storage; afterwards only what is refused comes here, and goes to
  // the spare request at the end.
  [[gnu::cold]] ibv_send_wr& first_or_refused() noexcept {
    if (count_ == 0 && !refused_) {
      if (chain_->owner == nullptr) {
        chain_->owner = this;
        limit_ = chain_->capacity;
        return chain_->requests[count_++];
      }
      refuse_at(0, Code::kBusy, 0, 0);
    }
    refuse_at(count_, Code::kLimitExceeded, std::uint64_t{count_} + 1, chain_->capacity);
    return chain_->requests[chain_->capacity];
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, const LocalSlice& local) noexcept {
    ibv_send_wr& wr = next();
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    // A slice of no bytes and no key is an empty message, not an element that names address 0.
    wr.num_sge = local.length_bytes() == 0 ? 0 : 1;
    wr.sg_list[0] = local.raw();
    if (!local.valid()) [[unlikely]]
      refuse(Code::kOutOfRange, 0, 0);
    return wr;
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode,
                   std::span<const LocalSlice> local) noexcept {
    ibv_send_wr& wr = next();
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.num_sge = 0;
    if (local.size() > chain_->elements_per_request) [[unlikely]] {
      refuse(Code::kLimitExceeded, local.size(), chain_->elements_per_request);
      return wr;
    }
    for (const LocalSlice& slice : local) {
      if (!slice.valid()) [[unlikely]]
        refuse(Code::kOutOfRange, 0, 0);
      wr.sg_list[wr.num_sge++] = slice.raw();
    }
    return wr;
  }
  ibv_send_wr& set_remote(ibv_send_wr& wr, std::uint64_t length_bytes,
                          const RemoteSlice& remote) noexcept {
    if (length_bytes > remote.length_bytes() || !remote.valid()) [[unlikely]]
      refuse(Code::kOutOfRange, length_bytes, remote.valid() ? remote.length_bytes() : 0);
    wr.wr.rdma.remote_addr = remote.address();
    wr.wr.rdma.rkey = remote.rkey();
    return wr;
  }
  void set_atomic(ibv_send_wr& wr, const LocalSlice& local, const RemoteSlice& remote,
                  std::uint64_t operand) noexcept {
    if (!remote.valid() || remote.length_bytes() < 8) [[unlikely]]
      refuse(Code::kOutOfRange, 8, remote.valid() ? remote.length_bytes() : 0);
    else if ((remote.address() & 7) != 0) [[unlikely]]
      refuse(Code::kMisaligned, remote.address(), remote.address() & ~std::uint64_t{7});
    else if (local.length_bytes() != 8) [[unlikely]]
      refuse(Code::kInvalidArgument, local.length_bytes(), 8);
    wr.wr.atomic.remote_addr = remote.address();
    wr.wr.atomic.rkey = remote.rkey();
    wr.wr.atomic.compare_add = operand;
  }

  // For the request added last.
  [[gnu::cold]] void refuse(Code code, std::uint64_t asked, std::uint64_t allowed) noexcept {
    refuse_at(count_ - 1, code, asked, allowed);
  }
  [[gnu::cold]] void refuse_at(std::uint32_t request_index, Code code, std::uint64_t asked,
                               std::uint64_t allowed) noexcept {
    if (refused_) return;
    refused_ = true;
    misuse_ = {code, request_index, asked, allowed};
    limit_ = count_;
  }
  [[gnu::cold]] Status drop() {
    release();
    taken_ = 0;
    refused_ = false;
    return misuse_.error(false);
  }
  // An empty batch does not touch the storage, which may be gone by then.
  void release() noexcept {
    if (limit_ != 0) chain_->owner = nullptr;
    count_ = 0;
    limit_ = 0;
  }

  ibv_qp* pair_;
  PostSend post_;
  detail::Chain<ibv_send_wr>* chain_;
  std::uint32_t inline_bytes_;
  std::uint32_t count_ = 0;
  // 0 until the storage is taken, then its capacity; after a refusal what count_ was.
  std::uint32_t limit_ = 0;
  std::uint32_t taken_ = 0;
  bool refused_ = false;
  detail::Misuse misuse_;
};

/// A chain of receives being built on one queue pair. Made by `QueuePair::start_receives`.
/// The same rules as for Batch; the bytes belong to the NIC until their receive has completed.
class ReceiveBatch {
 public:
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;
  ~ReceiveBatch() { release(); }

  /// `local` must allow kLocalWrite. An empty slice makes a receive that takes no bytes: enough for
  /// a write with immediate.
  ReceiveBatch& receive(std::uint64_t id, const LocalSlice& local) noexcept {
    return receive(id, local.length_bytes() == 0 ? std::span<const LocalSlice>{}
                                                 : std::span<const LocalSlice>{&local, 1});
  }
  ReceiveBatch& receive(std::uint64_t id, std::span<const LocalSlice> local) noexcept;
  ReceiveBatch& receive(std::uint64_t id) noexcept { return receive(id, LocalSlice{}); }

  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  [[nodiscard]] bool full() const noexcept { return count_ == chain_->capacity; }

  /// One ibv_post_recv. Errors: as for Batch::post.
  Status post();
  [[nodiscard]] std::uint32_t taken() const noexcept { return taken_; }

 private:
  template <Transport T>
  friend class QueuePair;
  using PostReceive = int (*)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  ReceiveBatch(ibv_qp* pair, PostReceive function, ReceiveStorage& storage) noexcept
      : pair_{pair}, post_{function}, chain_{storage.chain_.get()} {}
  void refuse(Code code, std::uint64_t asked, std::uint64_t allowed) noexcept;
  void release() noexcept {
    if (owns_storage_) chain_->owner = nullptr;
    owns_storage_ = false;
    count_ = 0;
  }

  ibv_qp* pair_;
  PostReceive post_;
  detail::Chain<ibv_recv_wr>* chain_;
  std::uint32_t count_ = 0;
  std::uint32_t taken_ = 0;
  bool owns_storage_ = false;
  bool refused_ = false;
  detail::Misuse misuse_;
};

}  // namespace remora::verbs
