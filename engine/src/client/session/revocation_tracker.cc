#include "client/session/revocation_tracker.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <sys/timerfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "client/datapath/lane_driver.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// Period of the timer that checks for operations in flight.
constexpr std::chrono::milliseconds kLook{2};
/// After this time, a synchronous call that has passed its check has submitted its operation, over
/// rdma and tcp; the server refuses a later operation. Over mapped memory it is the time that
/// MappedAccess::accessed() requires.
constexpr std::chrono::milliseconds kSettle{2};
constexpr std::chrono::milliseconds kAskTimeout{200};
constexpr std::chrono::milliseconds kReadTimeout{100};

}  // namespace

RevocationTracker::~RevocationTracker() {
  EventLoop::Token watch = 0;
  {
    const MutexLock lock{mutex_};
    watch = std::exchange(watch_, 0);
  }
  if (watch != 0) loop_.forget(watch);
}

void RevocationTracker::add(const std::shared_ptr<RevocableGrant>& grant) {
  const MutexLock lock{mutex_};
  grants_[grant->grant_id()] = {grant.get(), grant};
  if (const auto found = unknown_.find(grant->grant_id()); found != unknown_.end()) {
    grant->revoke(found->second);
    unknown_.erase(found);
  }
}

void RevocationTracker::remove(const RevocableGrant& grant) noexcept {
  const MutexLock lock{mutex_};
  const auto found = grants_.find(grant.grant_id());
  if (found != grants_.end() && found->second.grant == &grant) grants_.erase(found);
}

std::vector<std::uint64_t> RevocationTracker::grants_to_resume(std::size_t max_bytes) {
  constexpr int kVarintBits = 7;
  const MutexLock lock{mutex_};
  // The server has dropped the requests to open these grants.
  unknown_.clear();
  std::vector<std::uint64_t> held;
  std::size_t bytes = 0;
  for (const auto& [grant_id, each] : grants_) {
    bytes += static_cast<std::size_t>((std::bit_width(grant_id) + kVarintBits - 1) / kVarintBits);
    if (bytes > max_bytes)
      each.grant->revoke(Reason::kRevoked);
    else
      held.push_back(grant_id);
  }
  return held;
}

std::vector<HeldGrant> RevocationTracker::held_grants() const {
  const MutexLock lock{mutex_};
  std::vector<HeldGrant> held;
  for (const auto& [grant_id, each] : grants_)
    if (each.grant->revoked() == Reason::kNone) held.push_back(each.grant->held());
  return held;
}

bool RevocationTracker::on_revoking(std::uint64_t connection, std::uint64_t event_id,
                                    std::uint64_t grant_id, Reason reason) {
  Pending pending{connection, event_id, {}};
  {
    const MutexLock lock{mutex_};
    if (const auto found = grants_.find(grant_id); found != grants_.end()) {
      pending.grant = found->second.weak;
      found->second.grant->revoke(reason);
    } else {
      // The answer that opens the grant may not have been read yet. Such grants have the highest
      // ids.
      unknown_.emplace(grant_id, reason);
      if (unknown_.size() > kMaxUnknown) unknown_.erase(unknown_.begin());
    }
  }
  return keep(std::move(pending));
}

bool RevocationTracker::acknowledge(std::uint64_t connection, std::uint64_t event_id) {
  return keep({connection, event_id, {}});
}

/// Acknowledges the event now, or keeps it until it can be acknowledged. False: too many events are
/// kept.
bool RevocationTracker::keep(Pending pending) {
  if (settled(pending)) return true;
  const MutexLock lock{mutex_};
  if (pending_.size() >= kMaxPending) return false;
  pending_.push_back(std::move(pending));
  // Without a timer no thread would acknowledge it. Then the server revokes the grant by force at
  // the end of its grace period.
  if (!start_timer()) pending_.pop_back();
  return true;
}

bool RevocationTracker::idle() const {
  const MutexLock lock{mutex_};
  return pending_.empty() && looked_at_ == 0;
}

/// True: the event was acknowledged, or belongs to an earlier connection, whose event ids now
/// belong to other events.
bool RevocationTracker::settled(Pending& pending) const {
  if (!session_.channel().is_current(pending.connection)) return true;
  if (!ready(pending)) return false;
  control::Request done;
  done.mutable_event_ack()->set_event_id(pending.event_id);
  return session_.channel().ask_unanswered(std::move(done), pending.connection) !=
         ControlChannel::Sent::kLater;
}

/// True: no operation of the grant is in flight, and none will be.
bool RevocationTracker::ready(Pending& pending) const {
  const auto grant = pending.grant.lock();
  if (grant == nullptr) return true;  // an operation would keep the grant alive
  const bool told = grant->tell_queues();
  // While the session is interrupted, carries() ends the operations of the grant that wait for a
  // lane. The owner of a queue that has not been told may wait for exactly these operations.
  if (!told && session_.connected()) return false;
  if (told && pending.look_from == Deadline::max()) pending.look_from = Clock::now() + kSettle;
  if (told && Clock::now() < pending.look_from) return false;
  bool carried = false;
  for (const auto& lane : session_.lanes()) carried = lane->carries(*grant) || carried;
  return told && !carried;
}

void RevocationTracker::on_timer() {
  std::uint64_t expirations = 0;
  std::vector<Pending> looked_at;
  {
    const MutexLock lock{mutex_};
    (void)!::read(timer_.get(), &expirations, sizeof expirations);
    looked_at.swap(pending_);
    looked_at_ = looked_at.size();
  }
  // Without the lock, since settled() takes lanes.
  std::erase_if(looked_at, [&](Pending& pending) { return settled(pending); });
  const MutexLock lock{mutex_};
  looked_at_ = 0;
  std::move(looked_at.begin(), looked_at.end(), std::back_inserter(pending_));
  if (pending_.empty()) {
    const itimerspec none{};
    ::timerfd_settime(timer_.get(), 0, &none, nullptr);
  }
}

/// Errors: kSystem.
Status RevocationTracker::start_timer() {
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

const RevocableGrant* RevocationTracker::owner_of(const OperationRecord& operation) const noexcept {
  for (const auto& [grant_id, held] : grants_)
    if (held.grant->owns(operation)) return held.grant;
  return nullptr;
}

Reason RevocationTracker::revoked(const OperationRecord& operation) const noexcept {
  const MutexLock lock{mutex_};
  const RevocableGrant* const grant = owner_of(operation);
  return grant == nullptr ? Reason::kNone : grant->revoked();
}

Reason RevocationTracker::known_of(std::uint64_t grant_id) const noexcept {
  const MutexLock lock{mutex_};
  const auto found = grants_.find(grant_id);
  return found == grants_.end() ? Reason::kNone : found->second.grant->revoked();
}

void RevocationTracker::set_revoked(std::uint64_t grant_id, Reason reason) noexcept {
  const MutexLock lock{mutex_};
  if (const auto found = grants_.find(grant_id); found != grants_.end())
    found->second.grant->revoke(reason);
}

Reason RevocationTracker::why_refused(const OperationRecord& operation) noexcept {
  std::uint64_t grant_id = 0;
  {
    const MutexLock lock{mutex_};
    const RevocableGrant* const grant = owner_of(operation);
    if (grant == nullptr || grant->revoked() != Reason::kNone)
      return grant == nullptr ? Reason::kNone : grant->revoked();
    grant_id = grant->grant_id();
  }
  // The control thread itself would have to read the answer, or servers of this version send none.
  if (loop_.is_loop_thread() || session_.version() < 2) return Reason::kNone;
  control::Request request;
  request.mutable_grant_state()->set_grant_id(grant_id);
  const auto answer = session_.call(std::move(request), "grant state", Clock::now() + kAskTimeout);
  // Waits until the control thread has read all events that the server sent before its answer, or
  // before it closed the connection.
  const Deadline read_by = Clock::now() + kReadTimeout;
  while (!answer && known_of(grant_id) == Reason::kNone && !session_.channel().read_to_end() &&
         Clock::now() < read_by)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  if (const Reason known = known_of(grant_id); known != Reason::kNone) return known;
  // When a server's process ends, the kernel may free its memory before its queue pairs, and the
  // NIC refuses operations that arrive between the two. Over tcp only a living process refuses
  // operations.
  const bool by_nic = session_.kind() == TransportKind::kRdma;
  if (!answer)
    return by_nic && answer.error().code() == Code::kConnectionLost ? Reason::kPeerGone
                                                                    : Reason::kNone;
  if (answer->reply.grant_state().holds()) return Reason::kNone;
  const std::uint32_t reason = answer->reply.grant_state().reason();
  if (reason > static_cast<std::uint32_t>(kReasonLast)) return Reason::kNone;
  set_revoked(grant_id, static_cast<Reason>(reason));
  return static_cast<Reason>(reason);
}

}  // namespace remora::detail
