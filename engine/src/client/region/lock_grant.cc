#include "client/region/lock_grant.h"

#include <utility>

#include "client/region/region_grant.h"
#include "client/region/region_opener.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// If one transport reaches the lock, another must not be used: their atomics are not atomic to
/// each other.
Uri uri_over_same_transport(const RegionGrant& core) {
  Uri uri = core.uri();
  uri.transport = core.session().kind();
  return uri;
}

}  // namespace

LockGrant::LockGrant(const Region& region)
    : engine_{core_of(region)->session().engine().shared_from_this()},
      opener_{core_of(region)->opener()},
      uri_{uri_over_same_transport(*core_of(region))},
      current_{core_of(region)} {}

std::shared_ptr<RegionGrant> LockGrant::current() const {
  const MutexLock lock{mutex_};
  return current_;
}

Result<std::shared_ptr<RegionGrant>> LockGrant::open(const std::shared_ptr<RegionGrant>& like,
                                                     Opening opening, Deadline deadline) const {
  auto opened = opener_.open_again(uri_, like->rights(), opening, deadline);
  if (!opened) return opened.error();
  return core_of(*opened);
}

Result<std::shared_ptr<RegionGrant>> LockGrant::replace(
    const std::shared_ptr<RegionGrant>& unusable, Deadline deadline) {
  {
    MutexLock lock{mutex_};
    if (!opened_.wait_until(lock, deadline, [this] {
          mutex_.assert_held();
          return !opening_;
        }))
      return unusable->named(Error{Code::kTimedOut, "open"}.with_reason(Reason::kExpired));
    if (current_ != unusable) return current_;
    opening_ = true;
  }
  auto opened = open(unusable, Opening::kOpen, deadline);
  std::shared_ptr<RegionGrant> before;  // destroyed without the mutex, since that sends a request
  {
    const MutexLock lock{mutex_};
    opening_ = false;
    // A fence that came meanwhile has revoked the older grant; the fence's grant is valid.
    if (current_ != unusable)
      opened = current_;
    else if (opened)
      before = std::exchange(current_, *opened);
  }
  opened_.notify_all();
  return opened;
}

Result<std::shared_ptr<RegionGrant>> LockGrant::fence() {
  auto opened = open(current(), Opening::kFence, Deadline::max());
  if (!opened) return opened.error();
  std::shared_ptr<RegionGrant> before;  // destroyed without the mutex
  const MutexLock lock{mutex_};
  before = std::exchange(current_, *opened);
  return opened;
}

}  // namespace remora::detail
