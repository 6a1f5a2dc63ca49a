#include <algorithm>
#include <cerrno>
#include <string_view>

#include <remora/verbs/shared_receive_queue.h>
#include <remora/verbs/teardown.h>

#include "errors.h"

namespace remora::verbs {
namespace detail {

struct SharedReceiveQueueState {
  SharedReceiveQueueState(ProtectionDomain parent, ibv_srq* raw, ReceiveStorage room) noexcept
      : domain{std::move(parent)}, queue{raw}, storage{std::move(room)} {
    const Provider& provider = domain.device().provider();
    post = provider.post_srq_recv != nullptr ? provider.post_srq_recv
                                             : queue->context->ops.post_srq_recv;
  }
  SharedReceiveQueueState(const SharedReceiveQueueState&) = delete;
  SharedReceiveQueueState& operator=(const SharedReceiveQueueState&) = delete;
  ~SharedReceiveQueueState() {
    const int result = domain.device().provider().destroy_srq(queue);
    if (result != 0) report_teardown_failure(provider_error("ibv_destroy_srq", errno_of(result)));
  }
  ProtectionDomain domain;
  ibv_srq* queue;
  int (*post)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  ReceiveStorage storage;
};

}  // namespace detail

Result<SharedReceiveQueue> SharedReceiveQueue::create(const ProtectionDomain& domain,
                                                      const SharedReceiveQueueOptions& options) {
  constexpr Operation kOperation = "ibv_create_srq";
  const Error wrong{Code::kInvalidArgument, kOperation};
  if (domain.empty()) return wrong.with_subject("no protection domain");
  const Device& device = domain.device();
  const DeviceAttributes& limits = device.attributes();
  if (options.depth == 0) return wrong.with_subject("depth").with_limit(0, limits.max_srq_wr);
  if (options.sge == 0) return wrong.with_subject("sge").with_limit(0, limits.max_srq_sge);
  const auto over = [&](std::string_view what, std::uint32_t asked, std::uint32_t allowed) {
    return Error{Code::kLimitExceeded, kOperation}.with_subject(what).with_limit(asked, allowed);
  };
  if (limits.max_srq_count == 0)
    return Error{Code::kUnsupported, kOperation}.with_subject(device.name());
  if (options.depth > limits.max_srq_wr) return over("depth", options.depth, limits.max_srq_wr);
  if (options.sge > limits.max_srq_sge) return over("sge", options.sge, limits.max_srq_sge);

  constexpr std::uint32_t kDefaultRoom = 64;
  auto storage = ReceiveStorage::allocate(
      options.batch_requests != 0 ? options.batch_requests : std::min(options.depth, kDefaultRoom),
      options.sge);
  if (!storage) return storage.error();
  ibv_srq_init_attr attributes{};
  attributes.srq_context = options.context;
  attributes.attr.max_wr = options.depth;
  attributes.attr.max_sge = options.sge;
  errno = 0;
  ibv_srq* const raw = device.provider().create_srq(domain.raw(), &attributes);
  if (raw == nullptr)
    return detail::provider_error(kOperation, detail::errno_of(-1)).with_subject(device.name());
  return SharedReceiveQueue{
      std::make_shared<detail::SharedReceiveQueueState>(domain, raw, std::move(*storage))};
}

const ProtectionDomain& SharedReceiveQueue::domain() const noexcept { return state_->domain; }
ibv_srq* SharedReceiveQueue::raw() const noexcept { return state_ ? state_->queue : nullptr; }

SharedReceiveBatch SharedReceiveQueue::start_receives() const noexcept {
  return start_receives(state_->storage);
}
SharedReceiveBatch SharedReceiveQueue::start_receives(ReceiveStorage& storage) const noexcept {
  return SharedReceiveBatch{state_->queue, state_->post, storage};
}
Status SharedReceiveQueue::post_receive(std::uint64_t id, const LocalSlice& local) const {
  return start_receives().receive(id, local).post();
}
int SharedReceiveQueue::post_receive(ibv_recv_wr* chain, ibv_recv_wr** bad) const noexcept {
  return state_->post(state_->queue, chain, bad);
}

Status SharedReceiveQueue::set_limit(std::uint32_t limit) const {
  ibv_srq_attr attributes{};
  attributes.srq_limit = limit;
  const int result =
      state_->domain.device().provider().modify_srq(state_->queue, &attributes, IBV_SRQ_LIMIT);
  if (result != 0) return detail::provider_error("ibv_modify_srq", detail::errno_of(result));
  return {};
}

Result<SharedReceiveQueueAttributes> SharedReceiveQueue::query() const {
  ibv_srq_attr attributes{};
  const int result = state_->domain.device().provider().query_srq(state_->queue, &attributes);
  if (result != 0) return detail::provider_error("ibv_query_srq", detail::errno_of(result));
  return SharedReceiveQueueAttributes{attributes.max_wr, attributes.max_sge, attributes.srq_limit};
}

}  // namespace remora::verbs
