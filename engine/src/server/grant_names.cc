#include "server/grant_names.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

namespace remora::detail {

std::uint64_t GrantNames::add(NoticeRights rights) {
  const MutexLock lock{mutex_};
  rights_.emplace(next_id_, std::move(rights));
  return next_id_++;
}

bool GrantNames::add_as(std::uint64_t grant_id, NoticeRights rights) {
  const MutexLock lock{mutex_};
  if (grant_id == 0 || grant_id > kMaxNamedId || rights_.contains(grant_id)) return false;
  rights_.emplace(grant_id, std::move(rights));
  next_id_ = std::max(next_id_, grant_id + 1);
  return true;
}

void GrantNames::avoid(std::uint64_t grant_id) {
  const MutexLock lock{mutex_};
  if (grant_id <= kMaxNamedId) next_id_ = std::max(next_id_, grant_id + 1);
}

void GrantNames::close(std::uint64_t grant_id) {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(rights_.contains(grant_id), "only a grant of the session is closed");
  closed_.push_back(grant_id);
  if (closed_.size() <= kMaxClosed) return;
  rights_.erase(closed_.front());
  closed_.pop_front();
}

bool GrantNames::was_granted(std::uint64_t grant_id) const {
  const MutexLock lock{mutex_};
  return grant_id != 0 && grant_id < next_id_;
}

std::optional<std::string> GrantNames::region_of(const transport::Notice& notice) const {
  const MutexLock lock{mutex_};
  const auto found = rights_.find(notice.grant_id);
  if (found == rights_.end()) {
    // The grant was closed long before this notice was read, unless the id was never given: that is
    // a violation of the protocol.
    if (notice.grant_id == 0 || notice.grant_id >= next_id_) return std::nullopt;
    return std::string{};
  }
  const NoticeRights& granted = found->second;
  const bool allowed = includes(granted.rights, Rights::kWrite) &&
                       notice.offset_bytes <= granted.size_bytes &&
                       notice.length_bytes <= granted.size_bytes - notice.offset_bytes;
  return allowed ? std::optional{granted.region} : std::nullopt;
}

void GrantNames::take_over(GrantNames& before) {
  std::unordered_map<std::uint64_t, NoticeRights> rights;
  std::deque<std::uint64_t> closed;
  std::uint64_t next_id = 1;
  {
    const MutexLock lock{before.mutex_};
    rights = std::exchange(before.rights_, {});
    closed = std::exchange(before.closed_, {});
    next_id = before.next_id_;
  }
  const MutexLock lock{mutex_};
  REMORA_ASSERT(next_id_ == 1, "a session resumes another one before it has grants of its own");
  rights_ = std::move(rights);
  closed_ = std::move(closed);
  next_id_ = next_id;
}

}  // namespace remora::detail
