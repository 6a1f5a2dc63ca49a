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
  const std::size_t requests = std::size_t{capacity} + 1;
  std::unique_ptr<Chain> chain{new (std::nothrow) Chain};
  if (!chain) return nullptr;
  chain->requests.reset(new (std::nothrow) WorkRequest[requests]{});
  chain->elements.reset(new (std::nothrow) ibv_sge[requests * elements_per_request]{});
  if (!chain->requests || !chain->elements) return nullptr;
  chain->capacity = capacity;
  chain->elements_per_request = elements_per_request;
  for (std::size_t i = 0; i < requests; ++i) {
    chain->requests[i].sg_list = &chain->elements[i * elements_per_request];
    chain->requests[i].next = i + 1 < requests ? &chain->requests[i + 1] : nullptr;
  }
  return chain;
}

template struct Chain<ibv_send_wr>;
template struct Chain<ibv_recv_wr>;

Error Misuse::error(bool receive) const {
  const Error made = receive ? Error{code, "ReceiveBatch::post"} : Error{code, "Batch::post"};
  const Error named = made.with_subject("request " + std::to_string(request_index));
  return asked == 0 && allowed == 0 ? named : named.with_limit(asked, allowed);
}

Error post_error(bool receive, int result, std::size_t taken, std::size_t count) {
  const int number = errno_of(result < 0 && result != -1 ? -result : result);
  const Code code = number == ENOMEM ? Code::kWouldBlock : Code::kProvider;
  const Error made = receive ? Error{code, "ibv_post_recv"} : Error{code, "ibv_post_send"};
  return made.with_errno(number).with_limit(count, taken);
}

}  // namespace detail

void ReceiveBatch::refuse(Code code, std::uint64_t asked, std::uint64_t allowed) noexcept {
  if (refused_) return;
  refused_ = true;
  misuse_ = {code, count_, asked, allowed};
}

ReceiveBatch& ReceiveBatch::receive(std::uint64_t id, std::span<const LocalSlice> local) noexcept {
  if (refused_) return *this;
  if (!owns_storage_) {
    if (chain_->owner != nullptr) return refuse(Code::kBusy, 0, 0), *this;
    chain_->owner = this;
    owns_storage_ = true;
  }
  if (count_ == chain_->capacity)
    return refuse(Code::kLimitExceeded, std::uint64_t{count_} + 1, chain_->capacity), *this;
  if (local.size() > chain_->elements_per_request)
    return refuse(Code::kLimitExceeded, local.size(), chain_->elements_per_request), *this;
  ibv_recv_wr& wr = chain_->requests[count_];
  wr.wr_id = id;
  wr.num_sge = 0;
  for (const LocalSlice& slice : local) {
    if (!slice.valid()) return refuse(Code::kOutOfRange, 0, 0), *this;
    wr.sg_list[wr.num_sge++] = slice.raw();
  }
  ++count_;
  return *this;
}

Status ReceiveBatch::post() {
  if (refused_) {
    release();
    taken_ = 0;
    refused_ = false;
    return misuse_.error(true);
  }
  if (count_ == 0) return {};
  ibv_recv_wr* const requests = chain_->requests.get();
  ibv_recv_wr& last = requests[count_ - 1];
  last.next = nullptr;
  ibv_recv_wr* bad = nullptr;
  const int result = post_(pair_, requests, &bad);
  last.next = &last + 1;
  const std::uint32_t count = count_;
  release();
  taken_ = count;
  if (result == 0) return {};
  taken_ = bad == nullptr ? 0 : static_cast<std::uint32_t>(bad - requests);
  return detail::post_error(true, result, taken_, count);
}

}  // namespace remora::verbs
