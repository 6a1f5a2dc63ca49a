#include "client/queue/executor_queue.h"

#include <utility>

#include <remora/assert.h>

#include "base/closed.h"
#include "client/region/region_grant.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

Result<std::unique_ptr<ExecutorQueue>> ExecutorQueue::create(
    const std::shared_ptr<RegionGrant>& region, std::size_t depth, ResumableList& ready) {
  auto queue = QueueCore::create(region, {.depth = depth});
  if (!queue) return queue.error();
  return std::make_unique<ExecutorQueue>(region, std::move(*queue), depth, ready);
}

ExecutorQueue::ExecutorQueue(const std::shared_ptr<RegionGrant>& region,
                             std::unique_ptr<QueueCore> queue, std::size_t depth,
                             ResumableList& ready)
    : AsyncCore{depth, region->session().engine().options().operation_deadline,
                [](Resumable& record) noexcept {
                  auto& ended = static_cast<AsyncRecord&>(record);
                  static_cast<ExecutorQueue*>(ended.core)->resume(ended);
                },
                false},
      region_{region},
      queue_{std::move(queue)},
      ready_{ready} {}

ExecutorQueue::~ExecutorQueue() {
  REMORA_ASSERT(!busy() && !has_line(), "a queue of an executor goes when nothing is in flight");
}

/// The queue has room, since it has as many places as there are records. Its deadline begins in
/// submit_and_poll(), also for an operation that has waited in line, so `until` is not used.
Status ExecutorQueue::submit(AsyncRecord& record, Deadline /*until*/) noexcept {
  if (queue_ == nullptr) [[unlikely]]
    return closed_handle("co_await", queue_.foreign());
  record.request.give_to(*queue_, std::uint64_t{record.index});
  record.in_flight = true;
  return {};
}

void ExecutorQueue::submit_and_poll() noexcept {
  submit_from_line();
  if (queue_ == nullptr) return;
  (void)queue_->submit();
  if (queue_->busy()) take_completions(queue_->wait(0));
}

void ExecutorQueue::take_completions(Completions found) noexcept {
  for (Completion& completion : found) {
    AsyncRecord& record = records()[completion.tag()];
    set_result(record, completion);
    record.in_flight = false;
    ready_.append(record);
  }
}

void ExecutorQueue::end_all_in_child() noexcept {
  // submit_and_poll() ends the operations in line.
  for (AsyncRecord& record : records()) {
    if (!std::exchange(record.in_flight, false)) continue;
    record.status = closed_handle("co_await", true);
    ready_.append(record);
  }
}

}  // namespace remora::detail
