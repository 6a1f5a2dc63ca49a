#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <string>

#include <remora/verbs/batch.h>

#include "errors.h"

namespace remora::verbs {
namespace detail {

template <typename WorkRequest>
std::unique_ptr<Chain<WorkRequest>> Chain<WorkRequest>::allocate(
    std::uint32_t capacity, std::uint32_t elements_per_request) noexcept {
  static_assert(sizeof(WorkRequest) % alignof(ibv_sge) == 0 &&
                alignof(WorkRequest) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ &&
                sizeof(ibv_sge) % alignof(WorkRequest) == 0);
  const std::size_t requests = std::size_t{capacity} + 1;
  std::unique_ptr<Chain> chain{new (std::nothrow) Chain};
  if (!chain) return nullptr;
  chain->stride_bytes = sizeof(WorkRequest) + std::size_t{elements_per_request} * sizeof(ibv_sge);
  chain->block.reset(new (std::nothrow) std::byte[requests * chain->stride_bytes]);
  if (!chain->block) return nullptr;
  chain->capacity = capacity;
  chain->elements_per_request = elements_per_request;
  for (std::size_t i = 0; i < requests; ++i) {
    auto* const request = new (chain->at(i)) WorkRequest{};
    request->sg_list = new (request + 1) ibv_sge[elements_per_request]{};
    request->next = i + 1 < requests ? chain->at(i + 1) : nullptr;
  }
  chain->spare = chain->at(capacity);
  return chain;
}

template struct Chain<ibv_send_wr>;
template struct Chain<ibv_recv_wr>;

Error Misuse::error(Operation operation) const {
  std::string subject = "request " + std::to_string(request_index);
  if (what == MisuseOf::kSlices) subject += ": slices";
  if (what == MisuseOf::kInlineBytes) subject += ": inline bytes";
  if (what == MisuseOf::kInlineRead) subject += ": inline read";
  const Error named = Error{code, operation}.with_subject(subject);
  return asked == 0 && allowed == 0 ? named : named.with_limit(asked, allowed);
}

Error post_error(Operation operation, int result, std::size_t taken, std::size_t count) {
  const int number = errno_of(result < 0 && result != -1 ? -result : result);
  const Code code = number == ENOMEM ? Code::kWouldBlock : Code::kProvider;
  return Error{code, operation}.with_errno(number).with_limit(count, taken);
}

}  // namespace detail

namespace {

template <typename Target>
constexpr Operation kPost = "ibv_post_recv";
template <>
constexpr Operation kPost<ibv_srq> = "ibv_post_srq_recv";

}  // namespace

template <typename Target>
void BasicReceiveBatch<Target>::refuse(Code code, std::uint64_t asked, std::uint64_t allowed,
                                       detail::MisuseOf what) noexcept {
  if (refused_) return;
  refused_ = true;
  misuse_ = {code, what, count_, count_, asked, allowed};
}

template <typename Target>
BasicReceiveBatch<Target>& BasicReceiveBatch<Target>::receive(
    std::uint64_t id, std::span<const LocalSlice> local) noexcept {
  if (refused_) return *this;
  if (!owns_storage_) {
    if (chain_->owner != nullptr) return refuse(Code::kBusy, 0, 0), *this;
    chain_->owner = this;
    owns_storage_ = true;
  }
  if (count_ == chain_->capacity)
    return refuse(Code::kLimitExceeded, std::uint64_t{count_} + 1, chain_->capacity), *this;
  if (local.size() > chain_->elements_per_request)
    return refuse(Code::kLimitExceeded, local.size(), chain_->elements_per_request,
                  detail::MisuseOf::kSlices),
           *this;
  ibv_recv_wr& wr = *chain_->at(count_);
  wr.wr_id = id;
  wr.num_sge = 0;
  for (const LocalSlice& slice : local) {
    if (!slice.valid()) return refuse(Code::kOutOfRange, 0, 0), *this;
    wr.sg_list[wr.num_sge++] = slice.raw();
  }
  ++count_;
  return *this;
}

template <typename Target>
Status BasicReceiveBatch<Target>::post() {
  if (refused_) {
    release();
    taken_ = 0;
    refused_ = false;
    return misuse_.error("ReceiveBatch::post");
  }
  if (count_ == 0) return {};
  ibv_recv_wr& last = *chain_->at(count_ - 1);
  last.next = nullptr;
  ibv_recv_wr* bad = nullptr;
  const int result = post_(target_, chain_->at(0), &bad);
  last.next = chain_->at(count_);
  const std::uint32_t count = count_;
  release();
  taken_ = count;
  if (result == 0) return {};
  taken_ = bad == nullptr ? 0 : chain_->index_of(bad);
  return detail::post_error(kPost<Target>, result, taken_, count);
}

template class BasicReceiveBatch<ibv_qp>;
template class BasicReceiveBatch<ibv_srq>;

}  // namespace remora::verbs
