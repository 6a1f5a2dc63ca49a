#include <atomic>
#include <cerrno>
#include <climits>
#include <string>

#include <remora/verbs/completion_queue.h>
#include <remora/verbs/teardown.h>

#include "errors.h"
#include "wait.h"

namespace remora::verbs {
namespace detail {

struct CompletionChannelState {
  CompletionChannelState(Device parent, ibv_comp_channel* raw) noexcept
      : device{std::move(parent)}, channel{raw} {}
  CompletionChannelState(const CompletionChannelState&) = delete;
  CompletionChannelState& operator=(const CompletionChannelState&) = delete;
  ~CompletionChannelState() {
    const int result = device.provider().destroy_comp_channel(channel);
    if (result != 0)
      report_teardown_failure(provider_error("ibv_destroy_comp_channel", errno_of(result)));
  }
  Device device;
  ibv_comp_channel* channel;
};

struct CompletionQueueState {
  CompletionQueueState(Device parent, const CompletionQueueOptions& options) noexcept
      : device{std::move(parent)}, channel{options.channel}, context{options.context} {}
  CompletionQueueState(const CompletionQueueState&) = delete;
  CompletionQueueState& operator=(const CompletionQueueState&) = delete;
  ~CompletionQueueState() {
    if (cq == nullptr) return;
    acknowledge();  // ibv_destroy_cq waits for unacknowledged events
    const int result = device.provider().destroy_cq(cq);
    if (result != 0) report_teardown_failure(provider_error("ibv_destroy_cq", errno_of(result)));
  }

  void acknowledge() noexcept {
    const unsigned count = unacknowledged.exchange(0, std::memory_order_acq_rel);
    if (count != 0) device.provider().ack_cq_events(cq, count);
  }
  // Acknowledging takes a lock in libibverbs, so it is done for many events at once.
  void event_taken() noexcept {
    constexpr unsigned kAcknowledgeAt = 64;
    if (unacknowledged.fetch_add(1, std::memory_order_acq_rel) + 1 >= kAcknowledgeAt) acknowledge();
  }

  Device device;
  CompletionChannel channel;
  void* context;
  bool own_channel = false;
  ibv_cq* cq = nullptr;
  ibv_cq_ex* extended = nullptr;  // the same queue, if it has extended fields
  CompletionFields fields = CompletionFields::kNone;
  int (*request_notify)(ibv_cq*, int) = nullptr;
  std::atomic<unsigned> unacknowledged{0};
};

}  // namespace detail

Result<CompletionChannel> CompletionChannel::create(const Device& device) {
  if (device.empty())
    return Error{Code::kInvalidArgument, "ibv_create_comp_channel"}.with_subject("no device");
  errno = 0;
  ibv_comp_channel* const raw = device.provider().create_comp_channel(device.raw());
  if (raw == nullptr)
    return detail::provider_error("ibv_create_comp_channel", detail::errno_of(-1))
        .with_subject(device.name());
  CompletionChannel channel{std::make_shared<detail::CompletionChannelState>(device, raw)};
  if (const Status set = detail::make_non_blocking(raw->fd); !set) return set.error();
  return channel;
}

int CompletionChannel::event_fd() const noexcept { return state_->channel->fd; }
ibv_comp_channel* CompletionChannel::raw() const noexcept { return state_->channel; }

Result<std::optional<CompletionQueueEvent>> CompletionChannel::next_event() const {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  errno = 0;
  if (state_->device.provider().get_cq_event(state_->channel, &queue, &user) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<CompletionQueueEvent>{};
    return detail::provider_error("ibv_get_cq_event", detail::errno_of(-1));
  }
  auto* const owner = static_cast<detail::CompletionQueueState*>(user);
  owner->event_taken();
  return std::optional{CompletionQueueEvent{queue, owner->context}};
}

Result<CompletionQueueEvent> CompletionChannel::wait_event(Deadline deadline) const {
  for (;;) {
    const auto event = next_event();
    if (!event) return event.error();
    if (event->has_value()) return **event;
    if (const Status ready = detail::wait_readable(event_fd(), deadline); !ready)
      return ready.error();
  }
}

CompletionQueue::CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state) noexcept
    : state_{std::move(state)} {
  cq_ = state_->cq;
  const Provider& provider = state_->device.provider();
  poll_ = provider.poll_cq != nullptr ? provider.poll_cq : cq_->context->ops.poll_cq;
  state_->request_notify =
      provider.req_notify_cq != nullptr ? provider.req_notify_cq : cq_->context->ops.req_notify_cq;
}

namespace {

Status check(const Device& device, const CompletionQueueOptions& options) {
  const Error wrong{Code::kInvalidArgument, "ibv_create_cq"};
  if (device.empty()) return wrong.with_subject("no device");
  const std::uint32_t max = device.attributes().max_cqe;
  if (options.depth == 0) return wrong.with_subject("depth").with_limit(0, max);
  if (options.depth > max || options.depth > INT_MAX)
    return Error{Code::kLimitExceeded, "ibv_create_cq"}
        .with_subject(device.name())
        .with_limit(options.depth, max);
  const std::uint32_t vectors = device.completion_vector_count();
  if (options.vector < 0) return wrong.with_subject("vector " + std::to_string(options.vector));
  if (static_cast<std::uint32_t>(options.vector) >= vectors)
    return wrong.with_subject("vector").with_limit(static_cast<std::uint64_t>(options.vector),
                                                   vectors == 0 ? 0 : vectors - 1);
  if (options.channel.empty()) return {};
  if (options.events) return wrong.with_subject("channels, own and shared").with_limit(2, 1);
  if (options.channel.raw()->context != device.raw())
    return wrong.with_subject("the channel belongs to another device");
  return {};
}

Status make(detail::CompletionQueueState& state, const CompletionQueueOptions& options) {
  const Device& device = state.device;
  ibv_comp_channel* const channel = state.channel.empty() ? nullptr : state.channel.raw();
  errno = 0;
  if (options.fields == CompletionFields::kNone) {
    state.cq = device.provider().create_cq(device.raw(), static_cast<int>(options.depth), &state,
                                           channel, options.vector);
    if (state.cq != nullptr) return {};
    return detail::provider_error("ibv_create_cq", detail::errno_of(-1))
        .with_subject(device.name());
  }
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = options.depth;
  attributes.cq_context = &state;
  attributes.channel = channel;
  attributes.comp_vector = static_cast<std::uint32_t>(options.vector);
  attributes.wc_flags = static_cast<std::uint64_t>(options.fields);
  state.extended = device.provider().create_cq_ex(device.raw(), &attributes);
  if (state.extended == nullptr) {
    const int number = detail::errno_of(-1);
    // Drivers answer EINVAL or EOPNOTSUPP for a field they do not have.
    const Error error = number == EINVAL ? Error{Code::kUnsupported, "ibv_create_cq_ex"}
                                         : detail::provider_error("ibv_create_cq_ex", number);
    return error.with_errno(number).with_subject("a completion field on " +
                                                 std::string{device.name()});
  }
  state.fields = options.fields;
  state.cq = ibv_cq_ex_to_cq(state.extended);
  return {};
}

}  // namespace

Result<CompletionQueue> CompletionQueue::create(const Device& device,
                                                const CompletionQueueOptions& options) {
  if (const Status checked = check(device, options); !checked) return checked.error();
  auto state = std::make_shared<detail::CompletionQueueState>(device, options);
  if (options.events) {
    auto channel = CompletionChannel::create(device);
    if (!channel) return channel.error();
    state->channel = std::move(*channel);
    state->own_channel = true;
  }
  if (const Status made = make(*state, options); !made) return made.error();
  return CompletionQueue{std::move(state)};
}

Result<ExtendedPoll> CompletionQueue::start_poll() const {
  if (state_->extended == nullptr)
    return Error{Code::kInvalidArgument, "ibv_start_poll"}.with_subject("a queue without fields");
  return ExtendedPoll::start(state_->extended, state_->fields, state_);
}

const Device& CompletionQueue::device() const noexcept { return state_->device; }
ibv_cq_ex* CompletionQueue::raw_extended() const noexcept { return state_->extended; }
const CompletionChannel& CompletionQueue::channel() const noexcept { return state_->channel; }
int CompletionQueue::event_fd() const noexcept {
  return state_->channel.empty() ? -1 : state_->channel.event_fd();
}

Status CompletionQueue::arm(Notify notify) const {
  if (state_->channel.empty())
    return Error{Code::kInvalidArgument, "ibv_req_notify_cq"}.with_subject("no channel");
  const int result = state_->request_notify(cq_, notify == Notify::kSolicited ? 1 : 0);
  if (result != 0) return detail::provider_error("ibv_req_notify_cq", detail::errno_of(result));
  return {};
}

Result<std::uint32_t> CompletionQueue::take_events() const {
  if (!state_->own_channel)
    return Error{Code::kInvalidArgument, "ibv_get_cq_event"}.with_subject("no channel of its own");
  for (std::uint32_t count = 0;; ++count) {
    const auto event = state_->channel.next_event();
    if (!event) return event.error();
    if (!event->has_value()) return count;
  }
}

Result<std::span<const Completion>> CompletionQueue::wait(std::span<Completion> storage,
                                                          Deadline deadline) const {
  if (storage.empty() || !state_->own_channel)
    return Error{Code::kInvalidArgument, "CompletionQueue::wait"}.with_subject(
        storage.empty() ? "an empty storage" : "no channel of its own");
  for (;;) {
    auto found = poll(storage);
    if (!found || !found->empty()) return found;
    if (const Status armed = arm(); !armed) return armed.error();
    found = poll(storage);  // a completion between poll and arming makes no event
    if (!found || !found->empty()) return found;
    if (const Status ready = detail::wait_readable(event_fd(), deadline); !ready)
      return ready.error();
    if (const auto taken = take_events(); !taken) return taken.error();
  }
}

}  // namespace remora::verbs
