#include "claim_keeper.h"

#include <utility>

#include <remora/start_thread.h>

#include "mirror_log.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

ClaimKeeper::ClaimKeeper(std::shared_ptr<VolumeClaim> claim, const MirrorOptions& options)
    : claim_{std::move(claim)}, options_{options} {}

Status ClaimKeeper::start() {
  auto thread = remora::detail::start_thread(
      "remora-claim", [this, renewed = options_.clock->now()] { run(renewed); });
  if (!thread) return thread.error();
  const MutexLock lock{joining_};
  thread_ = std::move(*thread);
  return {};
}

void ClaimKeeper::stop() {
  {
    const MutexLock lock{mutex_};
    stopped_ = true;
    wake_.notify_all();
  }
  const MutexLock lock{joining_};
  if (thread_.joinable()) thread_.join();
}

bool ClaimKeeper::wait() {
  constexpr std::chrono::milliseconds kPeriod{20};
  MutexLock lock{mutex_};
  return !wake_.wait_for(lock, kPeriod, [&] {
    mutex_.assert_held();
    return stopped_;
  });
}

void ClaimKeeper::run(std::chrono::nanoseconds renewed) {
  while (wait()) {
    const auto now = options_.clock->now();
    // A renewal that fails is tried again in the next period: other clients may claim the volume
    // meanwhile, no more.
    if (now - renewed >= std::chrono::nanoseconds{options_.lease} / 3 && claim_->keep_alive())
      renewed = now;
    if (!claim_->lost()) continue;
    options_.metrics->claim_lost();
    log_writer_lost(claim_->volume().name, claim_->writer_epoch());
    if (options_.on_event)
      options_.on_event({.kind = VolumeEventKind::kWriterLost, .error = claim_->lost_error()});
    return;
  }
}

}  // namespace remora::volume::detail
