#include "client/revocation_desk.h"

#include <algorithm>
#include <cerrno>
#include <sys/timerfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "client/engine_core.h"
#include "client/lane_driver.h"
#include "support/log.h"

namespace remora::detail {

namespace {

/// How often what is still in flight is looked at.
constexpr std::chrono::milliseconds kLook{2};
/// A synchronous call that has just passed its check is with its lane by then.
constexpr std::chrono::milliseconds kSettle{2};
constexpr std::chrono::milliseconds kAskTimeout{200};
constexpr std::chrono::milliseconds kReadTimeout{100};

}  // namespace

RevocationDesk::~RevocationDesk() {
  EventLoop::Token watch = 0;
  {
    const std::lock_guard lock{mutex_};
    watch = std::exchange(watch_, 0);
  }
  if (watch != 0) loop_.forget(watch);
}

void RevocationDesk::add(std::uint64_t grant_id, const std::shared_ptr<RegionCore>& region) {
  const std::lock_guard lock{mutex_};
  regions_[grant_id] = region;
  if (const auto found = unknown_.find(grant_id); found != unknown_.end()) {
    region->revoke(found->second);
    unknown_.erase(found);
  }
}

void RevocationDesk::remove(std::uint64_t grant_id) noexcept {
  const std::lock_guard lock{mutex_};
  regions_.erase(grant_id);
}

bool RevocationDesk::revoking(std::uint64_t event_id, std::uint64_t grant_id, Reason reason) {
  std::shared_ptr<RegionCore> region;
  {
    const std::lock_guard lock{mutex_};
    if (const auto found = regions_.find(grant_id); found != regions_.end())
      region = found->second.lock();
    else if (unknown_.size() < kUnknownMost)
      unknown_.emplace(grant_id, reason);
    if (region != nullptr) region->revoke(reason);
  }
  if (!session_.reachable()) return true;
  Pending pending{event_id, region};
  const bool done = region == nullptr || ready(pending);
  if (!done) {
    const std::lock_guard lock{mutex_};
    if (pending_.size() >= kPendingMost) return false;
    pending_.push_back(std::move(pending));
    if (start_timer()) return true;
    pending_.pop_back();
  }
  // Nothing of it, or nobody who would look: then the server's grace ends it.
  if (done) session_.acknowledge(event_id);
  return true;
}

/// Nothing of the grant is in flight, or will be.
bool RevocationDesk::ready(Pending& pending) const {
  const auto region = pending.region.lock();
  if (region == nullptr) return true;  // operations keep it
  if (!region->tell_queues()) return false;
  if (pending.look_from == Deadline::max()) pending.look_from = Clock::now() + kSettle;
  if (Clock::now() < pending.look_from) return false;
  return std::none_of(session_.lanes().begin(), session_.lanes().end(),
                      [&](const auto& lane) { return lane->carries(*region); });
}

void RevocationDesk::on_timer() {
  std::uint64_t expirations = 0;
  std::vector<Pending> looked_at;
  {
    const std::lock_guard lock{mutex_};
    (void)!::read(timer_.get(), &expirations, sizeof expirations);
    looked_at.swap(pending_);
  }
  // Without the lock: a lane that breaks meanwhile asks why.
  std::vector<std::uint64_t> done;
  std::erase_if(looked_at, [&](Pending& pending) {
    if (!ready(pending)) return false;
    done.push_back(pending.event_id);
    return true;
  });
  for (const std::uint64_t event_id : done) session_.acknowledge(event_id);
  const std::lock_guard lock{mutex_};
  std::move(looked_at.begin(), looked_at.end(), std::back_inserter(pending_));
  if (pending_.empty() || !session_.connected()) {
    const itimerspec none{};
    ::timerfd_settime(timer_.get(), 0, &none, nullptr);
  }
}

/// With the lock held. Errors: kSystem.
Status RevocationDesk::start_timer() {
  if (!timer_) {
    UniqueFd made{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
    if (!made) return Error{Code::kSystem, "timerfd_create"}.with_errno(errno);
    auto watch = loop_.watch(made.get(), [weak = session_.weak_from_this(), this] {
      if (const auto alive = weak.lock()) on_timer();
    });
    if (!watch) return watch.error();
    timer_ = std::move(made);
    watch_ = *watch;
  }
  itimerspec when{};
  when.it_value.tv_nsec = when.it_interval.tv_nsec = std::chrono::nanoseconds{kLook}.count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  return {};
}

std::shared_ptr<RegionCore> RevocationDesk::region_of(const OperationRecord& operation) {
  // Let go of without the lock: a region that goes takes it.
  std::vector<std::shared_ptr<RegionCore>> regions;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [grant_id, weak] : regions_) regions.push_back(weak.lock());
  }
  for (auto& region : regions)
    if (region != nullptr && region->owns(operation)) return std::move(region);
  return nullptr;
}

Reason RevocationDesk::why_refused(const OperationRecord& operation) noexcept {
  const auto region = region_of(operation);
  if (region == nullptr) return Reason::kNone;
  if (const Reason known = region->revoked(); known != Reason::kNone) return known;
  // Nobody would hear the answer, or there is none.
  if (loop_.is_loop_thread() || session_.version() < 2) return Reason::kNone;
  control::Request request;
  request.mutable_grant_state()->set_grant_id(region->grant_id());
  const auto answer = session_.call(std::move(request), "grant state", Clock::now() + kAskTimeout);
  // What the server had said before its answer, or before it hung up, is known by now.
  const Deadline read_by = Clock::now() + kReadTimeout;
  while (!answer && region->revoked() == Reason::kNone && !session_.heard_all() &&
         Clock::now() < read_by)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  if (const Reason known = region->revoked(); known != Reason::kNone) return known;
  if (!answer || answer->reply.grant_state().holds()) return Reason::kNone;
  const std::uint32_t reason = answer->reply.grant_state().reason();
  if (reason > static_cast<std::uint32_t>(kReasonLast)) return Reason::kNone;
  region->revoke(static_cast<Reason>(reason));
  return static_cast<Reason>(reason);
}

}  // namespace remora::detail
