#include "client/services/engine_services.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "client/datapath/job_threads.h"
#include "client/services/control_calls.h"
#include "client/services/pollers.h"

namespace remora::detail {

namespace {

std::uint32_t processor_count() noexcept {
  return std::max(1U, std::thread::hardware_concurrency());
}

std::uint32_t copy_threads(const EngineOptions& options) noexcept {
  constexpr std::uint32_t kMaxCopyThreads = 4;
  return options.copy_threads != 0 ? options.copy_threads
                                   : std::min(processor_count(), kMaxCopyThreads);
}

}  // namespace

EngineServices::EngineServices(EngineOptions options, Placement placement)
    : options_{std::move(options)},
      placement_{std::move(placement)},
      parallel_copy_{std::make_shared<ParallelCopy>(copy_threads(options_), placement_)},
      control_calls_{std::make_shared<ControlCalls>(options_.control_threads, placement_)},
      pollers_{std::make_unique<Pollers>()},
      memory_{options_, placement_} {}

EngineServices::~EngineServices() { control_calls_->stop(); }

ControlOptions EngineServices::control_options(ControlOptions given) const {
  if (given.deadline <= given.deadline.zero())
    given.deadline =
        options_.control_deadline + std::max(options_.connect_for, options_.connect_for.zero());
  return given;
}

Result<EventLoop*> EngineServices::control_loop() {
  const MutexLock lock{mutex_};
  if (control_loop_ == nullptr) {
    auto loop = EventLoop::start("remora-client",
                                 [placement = placement_] { (void)placement.bind_thread(); });
    if (!loop) return loop.error();
    control_loop_ = std::move(*loop);
  }
  return control_loop_.get();
}

std::optional<EventLoop::Parting> EngineServices::parting() const noexcept {
  const MutexLock lock{mutex_};
  if (control_loop_ == nullptr || pollers_->is_one_of_them()) return std::nullopt;
  return std::optional<EventLoop::Parting>{std::in_place, *control_loop_};
}

Result<Poller*> EngineServices::poller() {
  const MutexLock lock{mutex_};
  return pollers_->pick(options_.pollers, options_.spin, placement_, *options_.registry);
}

bool EngineServices::on_poller() const noexcept {
  const MutexLock lock{mutex_};
  return pollers_->is_one_of_them();
}

Result<std::shared_ptr<JobThreads>> EngineServices::arena() {
  const MutexLock lock{mutex_};
  if (arena_ == nullptr) {
    const std::uint32_t threads =
        options_.arena_threads != 0 ? options_.arena_threads : std::max(2U, processor_count()) - 1;
    auto made = JobThreads::start(threads, placement_);
    if (!made) return made.error();
    arena_ = std::move(*made);
  }
  return arena_;
}

std::chrono::nanoseconds EngineServices::goodbye_time() const noexcept {
  constexpr std::chrono::milliseconds kTime{300};
  constexpr std::chrono::seconds kRemembered{5};
  const Clock::time_point not_sent{Clock::duration{goodbye_not_sent_at_.load()}};
  return Clock::now() - not_sent < kRemembered ? kTime / 10 : kTime;
}

void EngineServices::goodbye_not_sent() noexcept {
  goodbye_not_sent_at_.store(Clock::now().time_since_epoch().count());
}

}  // namespace remora::detail
