/// What a session does about grants that go: what the server says unasked, and what is asked of it.

#include <algorithm>
#include <utility>

#include "client/engine_core.h"
#include "client/queue_core.h"
#include "support/log.h"

namespace remora::detail {

using control::Request;

namespace {
/// Requests whose answers nobody waits for. A server that answers its client has few of them.
constexpr std::size_t kUnansweredMost = 1024;
}  // namespace

void SessionCore::on_event(const control::Event& event) {
  if (heed(event)) return;
  log::warn("session with {}: it says more than it waits for; ending the session", dial_.server);
  lose(Reason::kPeerGone, ClientMetrics::kProtocol);
}

/// False: more than a server that waits for its client says.
bool SessionCore::heed(const control::Event& event) {
  {
    const std::lock_guard lock{mutex_};
    if (waiters_.size() >= kUnansweredMost) return false;
  }
  switch (event.what_case()) {
    case control::Event::kRevoking: {
      const std::uint32_t given = event.revoking().reason();
      const auto reason = given <= static_cast<std::uint32_t>(kReasonLast)
                              ? static_cast<Reason>(given)
                              : Reason::kRevoked;
      // It is gone, whatever the reason was.
      return revocations_.revoking(event.id(), event.revoking().grant_id(),
                                   reason == Reason::kNone ? Reason::kRevoked : reason);
    }
    case control::Event::kDraining:
    case control::Event::WHAT_NOT_SET: acknowledge(event.id()); break;
    case control::Event::kEnding: break;
  }
  return true;
}

void SessionCore::acknowledge(std::uint64_t event_id) noexcept {
  if (!reachable()) return;
  Request seen;
  seen.mutable_event_ack()->set_event_id(event_id);
  ask_unanswered(std::move(seen));
}

/// Asks and waits for nothing. The answer counts as outstanding until it comes, and is dropped.
void SessionCore::ask_unanswered(Request request) noexcept {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock{mutex_};
    id = next_id_++;
    waiters_.emplace(id, nullptr);
  }
  if (send(std::move(request), id, Clock::now())) return;
  const std::lock_guard lock{mutex_};
  waiters_.erase(id);
}

void SessionCore::close_unanswered(std::uint64_t grant_id) noexcept {
  Request close;
  close.mutable_close()->set_grant_id(grant_id);
  ask_unanswered(std::move(close));
}

Result<SessionCore::Answer> SessionCore::ask_for(const std::string& name, Rights rights,
                                                 Opening how, Deadline deadline) {
  Request request;
  const auto fill = [&](auto& asked) {
    asked.set_name(name);
    asked.set_rights(static_cast<std::uint32_t>(rights));
  };
  if (how == Opening::kOpen) {
    fill(*request.mutable_open());
    return call(std::move(request), "open", deadline);
  }
  if (version_ < 2) return Error{Code::kUnsupported, "fence (an older server)"}.with_subject(name);
  fill(*request.mutable_fence());
  return call(std::move(request), "fence", deadline);
}

void RegionCore::revoke(Reason reason) noexcept {
  Reason none = Reason::kNone;
  revoked_.compare_exchange_strong(none, reason, std::memory_order_acq_rel);
  // Every operation is looked at closely from now on.
  __atomic_store_n(&quick_.domain_index, kKeylessDomain, __ATOMIC_RELAXED);
}

bool RegionCore::owns(const OperationRecord& operation) const noexcept {
  if (!operation.whole) return operation.extents.data() == grant_.extents.data();
  return std::any_of(grant_.extents.begin(), grant_.extents.end(), [&](const auto& extent) {
    return operation.request.remote_key == extent.remote_key &&
           operation.request.remote_address - extent.remote_address < extent.length_bytes;
  });
}

void RegionCore::join(QueueCore& queue) {
  const std::lock_guard lock{queues_mutex_};
  queues_.push_back({&queue, false});
}

void RegionCore::leave(const QueueCore& queue) noexcept {
  const std::lock_guard lock{queues_mutex_};
  std::erase_if(queues_, [&](const Told& each) { return each.queue == &queue; });
}

bool RegionCore::tell_queues() noexcept {
  const std::lock_guard lock{queues_mutex_};
  bool all = true;
  for (Told& each : queues_) {
    each.heard = each.heard || each.queue->look_again();
    all = all && each.heard;
  }
  return all;
}

}  // namespace remora::detail
