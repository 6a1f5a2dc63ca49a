#include <algorithm>
#include <cerrno>

#include <remora/verbs/extended_poll.h>

#include "errors.h"

namespace remora::verbs {

CompletionStatus ExtendedCompletion::status() const noexcept {
  return static_cast<CompletionStatus>(
      std::min<unsigned>(queue_->status, static_cast<unsigned>(CompletionStatus::kGeneral)));
}

Error ExtendedCompletion::error() const noexcept {
  Completion same;
  same.raw().status = queue_->status;
  same.raw().vendor_err = vendor_error();
  return same.error();
}

std::ostream& operator<<(std::ostream& out, const ExtendedCompletion& completion) {
  if (completion.ok())
    return out << to_string(completion.opcode()) << " id " << completion.id() << " ok";
  return out << "id " << completion.id() << " " << remora::to_string(completion.status())
             << " (vendor " << completion.vendor_error() << ")";
}

Result<ExtendedPoll> ExtendedPoll::start(ibv_cq_ex* queue, CompletionFields fields, Owner owner) {
  ibv_poll_cq_attr attributes{};
  const int result = queue->start_poll(queue, &attributes);
  if (result == ENOENT) return ExtendedPoll{queue, fields, false, std::move(owner)};
  if (result != 0) return detail::provider_error("ibv_start_poll", detail::errno_of(result));
  return ExtendedPoll{queue, fields, true, std::move(owner)};
}

void ExtendedPoll::advance() {
  const int result = started_->next_poll(started_.get());
  if (result == 0) return;
  more_ = false;
  if (result != ENOENT) status_ = detail::provider_error("ibv_next_poll", detail::errno_of(result));
}

}  // namespace remora::verbs
