#pragma once

/// The queue of coroutines that a poller of the engine drives: that of an AsyncQueue, and that of
/// Region::async() where no Executor runs. Any thread submits.

#include <memory>

#include <remora/engine/async.h>

#include "client/queue/async_core.h"
#include "client/queue/callback_core.h"
#include "client/region/region_async_queue.h"

namespace remora::detail {

class JobThreads;

class PolledAsyncCore final : public CallbackCore, public AsyncCore, public RegionAsyncQueue::Core {
 public:
  /// Errors: as Region::callback_queue, those of JobThreads::start.
  static Result<std::shared_ptr<PolledAsyncCore>> create(std::shared_ptr<RegionGrant> region,
                                                         const QueueOptions& options,
                                                         const Resume& resume);
  /// The queue of Region::async() of `region`, which owns it; made by the first call. Any thread.
  /// Errors: as Region::callback_queue.
  static Result<PolledAsyncCore*> of_region(RegionGrant& region) noexcept;
  PolledAsyncCore(std::shared_ptr<RegionGrant> region, Poller& poller, const QueueOptions& options,
                  const Resume& resume, std::shared_ptr<JobThreads> arena, bool belongs_to_region);

  /// See ~AsyncQueue(). By its owner, once.
  void close() noexcept;
  /// Of a queue from of_region(). Waits for the poller for 100 ms at most.
  void close_idle() noexcept override;

  using CallbackCore::region;

 protected:
  Status submit(AsyncRecord& record, Deadline until) noexcept override;
  void hand_over(AsyncRecord& record) noexcept override;

 private:
  /// A queue that keeps only the session of `region`; its records keep the region. The caller
  /// owns it, and calls close_idle(). Errors: as create().
  static Result<PolledAsyncCore*> create_for_region(RegionGrant& region);
  static void run_record(Resumable& record) noexcept;
  void ended(AsyncRecord& record, Completion& completion) noexcept;

  const Resume resume_;
  const std::shared_ptr<JobThreads> arena_;
};

}  // namespace remora::detail
