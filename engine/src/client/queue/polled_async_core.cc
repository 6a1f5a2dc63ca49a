#include "client/queue/polled_async_core.h"

#include <chrono>
#include <new>
#include <utility>

#include <remora/engine/region.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/job_threads.h"
#include "client/region/region_grant.h"
#include "client/services/engine_services.h"
#include "client/services/poller.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {
/// The queue whose close() waits for the coroutine that runs in this thread.
thread_local const PolledAsyncCore* t_resuming = nullptr;

/// A poller that runs a long callback leaves a region's queue later, by itself.
constexpr std::chrono::milliseconds kCloseIdleTime{100};

void drop_core(PolledAsyncCore* core) noexcept { core->drop(); }
}  // namespace

Result<std::shared_ptr<PolledAsyncCore>> PolledAsyncCore::create(
    std::shared_ptr<RegionGrant> region, const QueueOptions& options, const Resume& resume) {
  try {
    auto poller = poller_for(*region, options);
    if (!poller) return poller.error();
    std::shared_ptr<JobThreads> arena;
    if (resume.on_arena_) {
      auto made = region->session().engine().arena();
      if (!made) return made.error();
      arena = std::move(*made);
    }
    auto made = std::make_unique<PolledAsyncCore>(std::move(region), **poller, options, resume,
                                                  std::move(arena), false);
    const std::shared_ptr<PolledAsyncCore> core{made.release(), &drop_core};
    (*poller)->add(*core);
    return core;
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "async_queue"};
  }
}

Result<PolledAsyncCore*> PolledAsyncCore::create_for_region(RegionGrant& region) {
  try {
    const QueueOptions options;
    auto poller = poller_for(region, options);
    if (!poller) return poller.error();
    auto made = std::make_unique<PolledAsyncCore>(
        std::shared_ptr<RegionGrant>{region.session().shared_from_this(), &region}, **poller,
        options, Resume::on_poller(), nullptr, true);
    (*poller)->add(*made);
    return made.release();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "co_await"};
  }
}

Result<PolledAsyncCore*> PolledAsyncCore::of_region(RegionGrant& region) noexcept {
  return region.async_queue().get<PolledAsyncCore>([&] { return create_for_region(region); });
}

PolledAsyncCore::PolledAsyncCore(std::shared_ptr<RegionGrant> region, Poller& poller,
                                 const QueueOptions& options, const Resume& resume,
                                 std::shared_ptr<JobThreads> arena, bool belongs_to_region)
    : CallbackCore{std::move(region), poller, options},
      AsyncCore{options.depth, CallbackCore::deadline(), &PolledAsyncCore::run_record,
                belongs_to_region},
      resume_{resume},
      arena_{std::move(arena)} {}

Status PolledAsyncCore::submit(AsyncRecord& record, Deadline until) noexcept {
  const auto told = [&record](Completion& completion) {
    static_cast<PolledAsyncCore*>(record.core)->ended(record, completion);
  };
  return record.request.give_to(static_cast<CallbackCore&>(*this),
                                detail::give<decltype(told)&>(told), std::uint64_t{0}, until);
}

/// The poller calls it.
void PolledAsyncCore::ended(AsyncRecord& record, Completion& completion) noexcept {
  set_result(record, completion);
  // The executor may have ended meanwhile, and then does not look into its inbox. In that case the
  // coroutine does not exist any more.
  const bool forgotten =
      record.inbox != nullptr && record.operation.load(std::memory_order_acquire) == nullptr;
  if (forgotten || (record.inbox == nullptr && arena_ == nullptr && resume_.post_ == nullptr))
    resume(record);
  else
    hand_over(record);
}

void PolledAsyncCore::hand_over(AsyncRecord& record) noexcept {
  const std::shared_ptr<CoroutineInbox> inbox = std::move(record.inbox);
  if (inbox != nullptr || resume_.post_ != nullptr) {
    // A reference instead of a hold, since the thread that resumes the coroutine may be in close().
    keep();
    record.held = false;
    if (inbox != nullptr) return inbox->post(record);
    return resume_.post_(resume_.context_, Resumption{record});
  }
  record.held = hold();
  if (!record.held) keep();
  if (arena_ != nullptr) return arena_->post(record);
  poller().post(record);
}

void PolledAsyncCore::run_record(Resumable& record) noexcept {
  auto& resumed = static_cast<AsyncRecord&>(record);
  PolledAsyncCore& core = *static_cast<PolledAsyncCore*>(resumed.core);
  const bool held = resumed.held;
  const PolledAsyncCore* const before = std::exchange(t_resuming, held ? &core : t_resuming);
  core.resume(resumed);
  t_resuming = before;
  if (held)
    core.let_go();
  else
    core.drop();
}

void PolledAsyncCore::close() noexcept {
  if (t_resuming != this) return CallbackCore::close();
  abandon();
  log::warn({"queue.destroyed_on_poller"},
            "a queue was destroyed by a coroutine of its own: its operations are not waited for");
}

void PolledAsyncCore::close_idle() noexcept {
  abandon();
  if (!poller().is_this_thread()) (void)poller().part_with(*this, Clock::now() + kCloseIdleTime);
  drop();
}

void CloseAsync::operator()(PolledAsyncCore* closing) noexcept {
  closing->close();
  core = nullptr;
}

}  // namespace remora::detail

namespace remora {

AsyncQueue::AsyncQueue(std::shared_ptr<detail::PolledAsyncCore> core) noexcept
    : core_{std::unique_ptr<detail::PolledAsyncCore, detail::CloseAsync>{
          core.get(), detail::CloseAsync{core}}} {}
AsyncRegion AsyncQueue::async() const noexcept {
  const std::shared_ptr<detail::PolledAsyncCore>& core = core_.pointer().get_deleter().core;
  if (core == nullptr) return {nullptr, nullptr};
  return {core_.share(core->region()), core_.share(core)};
}
std::size_t AsyncQueue::depth() const noexcept { return core_ == nullptr ? 0 : core_->depth(); }

Result<AsyncQueue> Region::async_queue(const QueueOptions& options) const {
  return async_queue(options, Resume::on_poller());
}
Result<AsyncQueue> Region::async_queue(const QueueOptions& options, const Resume& resume) const {
  if (core_ == nullptr) return detail::closed("async_queue", core_);
  auto core = detail::PolledAsyncCore::create(core_.pointer(), options, resume);
  if (!core) return core.error();
  return AsyncQueue{std::move(*core)};
}

}  // namespace remora
