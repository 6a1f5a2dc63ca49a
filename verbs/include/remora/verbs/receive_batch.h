#pragma once

/// Receives, posted in chains: on a queue pair (`ReceiveBatch`) or on a shared receive queue.
///
/// Thread safety: as for Batch (batch.h). Source: ibv_post_recv(3), ibv_post_srq_recv(3).

#include <cstdint>
#include <infiniband/verbs.h>
#include <span>

#include <remora/result.h>
#include <remora/verbs/chain.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

class SharedReceiveQueue;

/// A chain of receives being built on a queue pair or a shared receive queue. Made by
/// `start_receives`.
/// The same rules as for Batch; the bytes belong to the NIC until their receive has completed.
template <typename Target>
class BasicReceiveBatch {
 public:
  BasicReceiveBatch(const BasicReceiveBatch&) = delete;
  BasicReceiveBatch& operator=(const BasicReceiveBatch&) = delete;
  ~BasicReceiveBatch() { release(); }

  /// `local` must allow kLocalWrite. An empty slice makes a receive without room for bytes, which
  /// is enough for a write with immediate.
  BasicReceiveBatch& receive(std::uint64_t id, const LocalSlice& local) noexcept {
    const bool nothing = local.length_bytes() == 0 && local.valid();
    return receive(id, std::span<const LocalSlice>{&local, nothing ? 0U : 1U});
  }
  /// A receive of several slices, which the message fills in order.
  BasicReceiveBatch& receive(std::uint64_t id, std::span<const LocalSlice> local) noexcept;
  /// A receive without room for bytes.
  BasicReceiveBatch& receive(std::uint64_t id) noexcept { return receive(id, LocalSlice{}); }

  /// Receives that are not posted yet.
  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  /// True: the storage has no room for a further receive.
  [[nodiscard]] bool full() const noexcept { return count_ == chain_->capacity; }

  /// One ibv_post_recv, or ibv_post_srq_recv. Errors: as for Batch::post.
  Status post();
  /// The number of receives that the last post() has posted.
  [[nodiscard]] std::uint32_t taken() const noexcept { return taken_; }

 private:
  template <Transport T>
  friend class QueuePair;
  friend class SharedReceiveQueue;
  using PostReceive = int (*)(Target*, ibv_recv_wr*, ibv_recv_wr**);
  BasicReceiveBatch(Target* target, PostReceive function, ReceiveStorage& storage) noexcept
      : target_{target}, post_{function}, chain_{storage.chain_.get()} {}
  void refuse(Code code, std::uint64_t asked, std::uint64_t allowed,
              detail::MisuseOf what = detail::MisuseOf::kRequest) noexcept;
  void release() noexcept {
    if (owns_storage_) chain_->owner = nullptr;
    owns_storage_ = false;
    count_ = 0;
  }

  Target* target_;
  PostReceive post_;
  detail::Chain<ibv_recv_wr>* chain_;
  std::uint32_t count_ = 0;
  std::uint32_t taken_ = 0;
  bool owns_storage_ = false;
  bool refused_ = false;
  detail::Misuse misuse_;  ///< valid if refused_
};

using ReceiveBatch = BasicReceiveBatch<ibv_qp>;
using SharedReceiveBatch = BasicReceiveBatch<ibv_srq>;
extern template class BasicReceiveBatch<ibv_qp>;
extern template class BasicReceiveBatch<ibv_srq>;

}  // namespace remora::verbs
