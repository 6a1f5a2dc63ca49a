#pragma once

/// The queue of coroutines that a poller drives: of an AsyncQueue, or of Region::async() outside of
/// an Executor. Any thread submits.

#include <memory>

#include <remora/engine/async.h>

#include "client/queue/async_core.h"
#include "client/queue/callback_core.h"
#include "client/region/region_async_queue.h"

namespace remora::detail {

class JobThreads;

/// An AsyncQueue, or the region of Region::async(), owns it. Thread-safe.
class PolledAsyncCore final : public CallbackCore, public AsyncCore, public RegionAsyncQueue::Core {
 public:
  /// Errors: as Region::callback_queue, and those of JobThreads::start.
  static Result<std::shared_ptr<PolledAsyncCore>> create(std::shared_ptr<RegionGrant> region,
                                                         const QueueOptions& options,
                                                         const Resume& resume);
  /// The queue of Region::async() of `region`, which owns it; the first call makes it. Any thread.
  /// Errors: as Region::callback_queue.
  static Result<PolledAsyncCore*> of_region(RegionGrant& region) noexcept;
  PolledAsyncCore(std::shared_ptr<RegionGrant> region, Poller& poller, const QueueOptions& options,
                  const Resume& resume, std::shared_ptr<JobThreads> arena, bool belongs_to_region);

  /// See ~AsyncQueue(). The owner calls it once.
  void close() noexcept;
  /// For a queue of of_region(). Waits at most 100 ms for the poller.
  void close_idle() noexcept override;

  using CallbackCore::region;

 protected:
  Status submit(AsyncRecord& record, Deadline until) noexcept override;
  void hand_over(AsyncRecord& record) noexcept override;

 private:
  /// Makes a queue that keeps only the session of `region`; its records keep the region. The caller
  /// owns it, and calls close_idle(). Errors: as create().
  static Result<PolledAsyncCore*> create_for_region(RegionGrant& region);
  static void run_record(Resumable& record) noexcept;
  void ended(AsyncRecord& record, Completion& completion) noexcept;

  const Resume resume_;
  const std::shared_ptr<JobThreads> arena_;
};

}  // namespace remora::detail
