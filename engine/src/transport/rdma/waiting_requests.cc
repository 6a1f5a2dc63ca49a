#include "transport/rdma/waiting_requests.h"

#include <cerrno>
#include <sys/eventfd.h>
#include <utility>

#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

Result<WaitingRequests> WaitingRequests::create() {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!event) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  return WaitingRequests{std::move(event)};
}

void WaitingRequests::add(verbs::WaitingRequest request) {
  const auto introduction = Introduction::from_wire(request.private_data());
  const bool lane = introduction && introduction->purpose == Purpose::kLane;
  (lane ? lanes_ : others_).push_back(std::move(request));
  show();
}

std::optional<verbs::WaitingRequest> WaitingRequests::take(WhichRequest which) noexcept {
  std::optional<verbs::WaitingRequest> found;
  for (std::size_t looks = 0; looks < kMaxLooks && !found; ++looks) {
    const bool is_turn_of_others =
        lanes_.empty() || (overtaking_ >= kMaxOvertaking && !others_.empty());
    const bool other = which == WhichRequest::kAny && is_turn_of_others;
    auto& queue = other ? others_ : lanes_;
    if (queue.empty()) break;
    overtaking_ = other || others_.empty() ? 0 : overtaking_ + 1;
    if (!queue.back().withdrawn()) found = std::move(queue.back());
    queue.pop_back();
  }
  show();
  return found;
}

void WaitingRequests::drop(std::string_view device) noexcept {
  const auto is_of = [&](const verbs::WaitingRequest& each) {
    return each.device_name() == device;
  };
  std::erase_if(lanes_, is_of);
  std::erase_if(others_, is_of);
  show();
}

void WaitingRequests::show() noexcept {
  if (shown_ == !empty()) return;
  shown_ = !empty();
  if (shown_) return signal_event(event_.get());
  eventfd_t value = 0;
  (void)::eventfd_read(event_.get(), &value);
}

}  // namespace remora::transport::rdma
