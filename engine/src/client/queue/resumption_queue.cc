#include <cerrno>
#include <new>
#include <utility>

#include <remora/engine/control.h>

#include "client/queue/coroutine_inbox.h"

namespace remora {

ResumptionQueue::ResumptionQueue(std::shared_ptr<detail::CoroutineInbox> inbox) noexcept
    : inbox_{std::move(inbox)} {}
ResumptionQueue::~ResumptionQueue() = default;
ResumptionQueue::ResumptionQueue(ResumptionQueue&&) noexcept = default;
ResumptionQueue& ResumptionQueue::operator=(ResumptionQueue&&) noexcept = default;

Result<ResumptionQueue> ResumptionQueue::create() noexcept {
  try {
    auto inbox = std::make_shared<detail::CoroutineInbox>();
    if (!inbox->open()) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
    return ResumptionQueue{std::move(inbox)};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "ResumptionQueue::create"};
  }
}

Resume ResumptionQueue::resume() const noexcept {
  if (inbox_ == nullptr) return {};
  return {[](void* inbox, Resumption next) noexcept {
            static_cast<detail::CoroutineInbox*>(inbox)->post(next.record());
          },
          inbox_.get()};
}
int ResumptionQueue::event_fd() const noexcept {
  return inbox_ == nullptr ? -1 : inbox_->event_fd();
}
std::size_t ResumptionQueue::progress() noexcept {
  return inbox_ == nullptr ? 0 : inbox_->run_and_arm();
}

}  // namespace remora
