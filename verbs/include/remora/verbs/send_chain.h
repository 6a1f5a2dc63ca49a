#pragma once

/// SendChain: the state of a Batch, for each transport of its queue pair: the chain that is being
/// built, its requests, the first misuse, and post().

#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <span>

#include <remora/result.h>
#include <remora/verbs/address_handle.h>
#include <remora/verbs/chain.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

template <Transport T>
class Batch;

namespace detail {

/// The part of every Batch<T> that is the same for each transport. Used through Batch only.
class SendChain {
 public:
  /// The request that was just added, to be modified before the next one is added.
  class Request {
   public:
    /// The request has no completion when it succeeds. A later signaled one shows that it is done.
    Request& unsignaled() noexcept {
      wr_->send_flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
      return *this;
    }
    /// The request has a completion, as by default; false: as unsignaled().
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
    /// Wakes a peer that has armed its queue for solicited completions only.
    Request& solicited() noexcept {
      wr_->send_flags |= IBV_SEND_SOLICITED;
      return *this;
    }
    /// Copies the bytes into the request when it is posted; they need no registration. At most
    /// `capabilities().inline_bytes`. Only for sends and writes.
    Request& inlined() noexcept {
      std::uint64_t total_bytes = 0;
      for (int i = 0; i < wr_->num_sge; ++i) total_bytes += wr_->sg_list[i].length;
      if (total_bytes > chain_->inline_bytes_ || wr_->opcode == IBV_WR_RDMA_READ ||
          wr_->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr_->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
          [[unlikely]]
        chain_->refuse_inline(wr_->opcode, total_bytes);
      wr_->send_flags |= IBV_SEND_INLINE;
      return *this;
    }
    /// Borrowed until the batch is posted: for fields that this class does not offer.
    [[nodiscard]] ibv_send_wr& raw() noexcept { return *wr_; }

   private:
    template <Transport T>
    friend class verbs::Batch;
    Request(SendChain* chain, ibv_send_wr* wr) noexcept : chain_{chain}, wr_{wr} {}
    SendChain* chain_;
    ibv_send_wr* wr_;
  };

  SendChain(const SendChain&) = delete;
  SendChain& operator=(const SendChain&) = delete;

  /// Requests that are not posted yet.
  [[nodiscard]] std::uint32_t size() const noexcept {
    if (state_ == State::kEmpty) return 0;
    return state_ == State::kOpen ? chain_->index_of(next_) : misuse_.size;
  }
  /// Whether the storage has no room for another request.
  [[nodiscard]] bool full() const noexcept { return size() == chain_->capacity; }

  /// Posts the chain; does nothing for an empty one. The batch is empty afterwards, also after an
  /// error. After an error the NIC has the first `taken()` requests, which will complete.
  ///
  /// Errors of misuse (nothing is posted; the subject names the request by its index, and the part
  /// that was too much: "request 2: inline bytes"): kOutOfRange (an invalid slice, or more local
  /// than remote bytes); kMisaligned (an atomic); kInvalidArgument (an atomic not of 8 bytes);
  /// kLimitExceeded (requests, slices, inline bytes); kBusy (another batch has unposted requests in
  /// the storage); for windows kClosed (it was freed) and kInvalidArgument (of another queue pair,
  /// or a region without kWindowBind). Errors, provider: kWouldBlock (ENOMEM: the send queue is
  /// full) and kProvider, with asked() the length of the chain and allowed() equal to taken().
  Status post() {
    if (state_ != State::kOpen) [[unlikely]]
      return state_ == State::kEmpty ? Status{} : drop();
    Chain<ibv_send_wr>* const chain = chain_;
    ibv_send_wr* const following = next_;
    ibv_send_wr* const last = chain->before(following);
    last->next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int result = post_(pair_, chain->at(0), &bad);
    last->next = following;
    taken_ = following;
    chain->owner = nullptr;
    state_ = State::kEmpty;
    next_ = chain->spare;
    if (result == 0) [[likely]]
      return {};
    return failed(result, bad);
  }
  /// The number of requests that the last post() has posted. The storage must still exist.
  [[nodiscard]] std::uint32_t taken() const noexcept {
    return taken_ == nullptr ? 0 : chain_->index_of(taken_);
  }

 protected:
  using PostSend = int (*)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);

  SendChain(ibv_qp* pair, PostSend function, std::uint32_t inline_bytes,
            Chain<ibv_send_wr>* chain) noexcept
      : pair_{pair}, post_{function}, chain_{chain}, next_{spare()}, inline_bytes_{inline_bytes} {}
  /// An empty batch does not touch the storage, which may be gone by then.
  ~SendChain() {
    if (state_ == State::kOpen || state_ == State::kRefused) release();
  }

  static LocalSlice borrow(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() >= UINT32_MAX) return LocalSlice::invalid();
    return LocalSlice::unchecked(reinterpret_cast<std::uintptr_t>(bytes.data()),
                                 static_cast<std::uint32_t>(bytes.size()), 0);
  }

  ibv_send_wr& next() noexcept {
    ibv_send_wr* const wr = next_;
    if (wr->next == nullptr) [[unlikely]]
      return first_or_refused();
    next_ = wr->next;
    return *wr;
  }
  /// The first request takes the storage; later calls are only for refused requests, which use the
  /// spare request at the end. A separate function, since the first request of every chain pays for
  /// it.
  [[gnu::cold, gnu::noinline]] ibv_send_wr& first_or_refused() noexcept {
    if (state_ != State::kEmpty || chain_->owner != nullptr) [[unlikely]]
      return refused();
    chain_->owner = this;
    state_ = State::kOpen;
    ibv_send_wr* const first = chain_->at(0);
    next_ = first->next;
    return *first;
  }
  [[gnu::cold, gnu::noinline]] ibv_send_wr& refused() noexcept {
    if (state_ == State::kEmpty) refuse_at(0, Code::kBusy, 0, 0);
    refuse_at(size(), Code::kLimitExceeded, std::uint64_t{size()} + 1, chain_->capacity);
    return *spare();
  }
  /// The request at the end, which no other follows.
  [[nodiscard]] ibv_send_wr* spare() const noexcept { return chain_->spare; }
  ibv_send_wr& start_request(std::uint64_t id, ibv_wr_opcode opcode, int elements) noexcept {
    ibv_send_wr& wr = next();
    wr.wr_id = id;
    wr.num_sge = elements;  // in the order of the members, so that stores can be merged
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, const LocalSlice& local) noexcept {
    ibv_send_wr& wr = start_element(id, opcode, local);
    if (local.length_bytes() == 0) [[unlikely]]
      set_empty(wr, local);
    return wr;
  }
  ibv_send_wr& start_element(std::uint64_t id, ibv_wr_opcode opcode,
                             const LocalSlice& local) noexcept {
    ibv_send_wr& wr = start_request(id, opcode, 1);
    *Chain<ibv_send_wr>::elements_of(&wr) = local.raw();
    return wr;
  }
  /// A slice without bytes and key is an empty message, not an element that names address 0.
  [[gnu::cold]] void set_empty(ibv_send_wr& wr, const LocalSlice& local) noexcept {
    wr.num_sge = 0;
    if (!local.valid()) refuse(Code::kOutOfRange, 0, 0);
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, const LocalSlice& local,
                   const RemoteSlice& remote) noexcept {
    ibv_send_wr& wr = start_element(id, opcode, local);
    wr.wr.rdma.remote_addr = remote.address();
    wr.wr.rdma.rkey = remote.rkey();
    // No local bytes, or fewer remote bytes, in one comparison: invalid slices have none.
    if (std::uint64_t{local.length_bytes()} - 1 >= remote.length_bytes()) [[unlikely]]
      check_transfer(wr, local, remote);
    return wr;
  }
  [[gnu::cold]] void check_transfer(ibv_send_wr& wr, const LocalSlice& local,
                                    const RemoteSlice& remote) noexcept {
    if (local.length_bytes() == 0) set_empty(wr, local);
    set_remote(wr, local.length_bytes(), remote);
  }
  /// Also returns the number of bytes.
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, std::span<const LocalSlice> local,
                   std::uint64_t& length_bytes) noexcept {
    length_bytes = 0;
    ibv_send_wr& wr = start_request(id, opcode, static_cast<int>(local.size()));
    if (local.size() > chain_->elements_per_request) [[unlikely]] {
      wr.num_sge = 0;
      refuse(Code::kLimitExceeded, local.size(), chain_->elements_per_request, MisuseOf::kSlices);
      return wr;
    }
    ibv_sge* element = Chain<ibv_send_wr>::elements_of(&wr);
    for (const LocalSlice& slice : local) {
      if (!slice.valid()) [[unlikely]]
        refuse(Code::kOutOfRange, 0, 0);
      *element++ = slice.raw();
      length_bytes += slice.length_bytes();
    }
    return wr;
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode,
                   std::span<const LocalSlice> local) noexcept {
    std::uint64_t length_bytes = 0;
    return add(id, opcode, local, length_bytes);
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, std::span<const LocalSlice> local,
                   const RemoteSlice& remote) noexcept {
    std::uint64_t length_bytes = 0;
    ibv_send_wr& wr = add(id, opcode, local, length_bytes);
    return set_remote(wr, length_bytes, remote);
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode,
                   std::span<const std::span<const std::byte>> pieces) noexcept {
    ibv_send_wr& wr = start_request(id, opcode, 0);
    if (pieces.size() > chain_->elements_per_request) [[unlikely]] {
      refuse(Code::kLimitExceeded, pieces.size(), chain_->elements_per_request, MisuseOf::kSlices);
      return wr;
    }
    for (const auto& piece : pieces) {
      const LocalSlice slice = borrow(piece);
      if (!slice.valid()) [[unlikely]]
        refuse(Code::kOutOfRange, 0, 0);
      if (!piece.empty()) wr.sg_list[wr.num_sge++] = slice.raw();
    }
    return wr;
  }
  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode,
                   std::span<const std::span<const std::byte>> pieces,
                   const RemoteSlice& remote) noexcept {
    std::uint64_t length_bytes = 0;
    for (const auto& piece : pieces) length_bytes += piece.size();
    return set_remote(add(id, opcode, pieces), length_bytes, remote);
  }
  static ibv_send_wr& set_immediate(ibv_send_wr& wr, std::uint32_t immediate) noexcept {
    wr.imm_data = htonl(immediate);
    return wr;
  }
  static ibv_send_wr& set_peer(ibv_send_wr& wr, const DatagramPeer& to) noexcept {
    wr.wr.ud.ah = to.handle().raw();
    wr.wr.ud.remote_qpn = to.qp_number();
    wr.wr.ud.remote_qkey = to.qkey();
    return wr;
  }
  void note(const Status& status) noexcept {
    if (!status) refuse(status.error().code(), status.error().asked(), status.error().allowed());
  }
  ibv_send_wr& set_remote(ibv_send_wr& wr, std::uint64_t length_bytes,
                          const RemoteSlice& remote) noexcept {
    // An invalid slice has no bytes: only an empty message needs the check.
    if (length_bytes > remote.length_bytes() || (length_bytes == 0 && !remote.valid())) [[unlikely]]
      refuse(Code::kOutOfRange, length_bytes, remote.length_bytes());
    wr.wr.rdma.remote_addr = remote.address();
    wr.wr.rdma.rkey = remote.rkey();
    return wr;
  }
  void set_atomic(ibv_send_wr& wr, const LocalSlice& local, const RemoteSlice& remote,
                  std::uint64_t operand) noexcept {
    if (remote.length_bytes() < 8) [[unlikely]]
      refuse(Code::kOutOfRange, 8, remote.length_bytes());
    else if ((remote.address() & 7) != 0) [[unlikely]]
      refuse(Code::kMisaligned, remote.address(), remote.address() & ~std::uint64_t{7});
    else if (local.length_bytes() != 8) [[unlikely]]
      refuse(Code::kInvalidArgument, local.length_bytes(), 8);
    wr.wr.atomic.remote_addr = remote.address();
    wr.wr.atomic.rkey = remote.rkey();
    wr.wr.atomic.compare_add = operand;
  }

  /// For the request that was added last.
  [[gnu::cold]] void refuse(Code code, std::uint64_t asked, std::uint64_t allowed,
                            MisuseOf what = MisuseOf::kRequest) noexcept {
    refuse_at(size() - 1, code, asked, allowed, what);
  }
  /// Reads and atomics have no bytes to copy, so they cannot be inline.
  [[gnu::cold]] void refuse_inline(ibv_wr_opcode opcode, std::uint64_t asked) noexcept {
    const bool outgoing = opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
                          opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
    refuse(Code::kLimitExceeded, asked, outgoing ? inline_bytes_ : 0,
           outgoing ? MisuseOf::kInlineBytes : MisuseOf::kInlineRead);
  }
  [[gnu::cold]] void refuse_at(std::uint32_t request_index, Code code, std::uint64_t asked,
                               std::uint64_t allowed, MisuseOf what = MisuseOf::kRequest) noexcept {
    if (state_ == State::kRefused || state_ == State::kBusy) return;
    misuse_ = {code, what, request_index, size(), asked, allowed};
    state_ = code == Code::kBusy ? State::kBusy : State::kRefused;
    next_ = spare();
  }
  [[gnu::cold, gnu::noinline]] Status drop() {
    if (state_ == State::kBusy)
      state_ = State::kEmpty;
    else
      release();
    taken_ = nullptr;
    return misuse_.error("Batch::post");
  }
  [[gnu::cold, gnu::noinline]] Status failed(int result, const ibv_send_wr* bad) {
    const std::uint32_t count = taken();
    taken_ = bad == nullptr ? chain_->at(0) : bad;
    return post_error("ibv_post_send", result, taken(), count);
  }
  void release() noexcept {
    chain_->owner = nullptr;
    state_ = State::kEmpty;
    next_ = spare();
  }

  enum class State : std::uint8_t {
    kEmpty,
    kOpen,     ///< has requests, and so the storage
    kRefused,  ///< has the storage, and a misuse to return
    kBusy,     ///< another batch has the storage: a misuse, too
  };

  ibv_qp* pair_;
  PostSend post_;
  Chain<ibv_send_wr>* chain_;
  ibv_send_wr* next_;  ///< the spare one until the storage is taken, or after a refusal
  const ibv_send_wr* taken_ = nullptr;  ///< behind those that the last post() has posted
  std::uint32_t inline_bytes_;
  State state_ = State::kEmpty;
  Misuse misuse_;  ///< of kRefused and kBusy
};

}  // namespace detail
}  // namespace remora::verbs
