#include "server/grant_names.h"

#include <utility>

#include <remora/assert.h>

namespace remora::detail {

std::uint64_t GrantNames::add(Name name) {
  const MutexLock lock{mutex_};
  names_.emplace(next_id_, std::move(name));
  return next_id_++;
}

void GrantNames::close(std::uint64_t grant_id) {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(names_.contains(grant_id), "only a grant of the session is closed");
  closed_.push_back(grant_id);
  if (closed_.size() <= kMaxClosed) return;
  names_.erase(closed_.front());
  closed_.pop_front();
}

bool GrantNames::was_granted(std::uint64_t grant_id) const {
  const MutexLock lock{mutex_};
  return grant_id != 0 && grant_id < next_id_;
}

std::optional<std::string> GrantNames::region_of(const transport::Notice& notice) const {
  const MutexLock lock{mutex_};
  const auto found = names_.find(notice.grant_id);
  if (found == names_.end()) {
    // Closed long before its last notice is read; an id that was never given is a lie.
    if (notice.grant_id == 0 || notice.grant_id >= next_id_) return std::nullopt;
    return std::string{};
  }
  const Name& name = found->second;
  const bool allowed = includes(name.rights, Rights::kWrite) &&
                       notice.offset_bytes <= name.size_bytes &&
                       notice.length_bytes <= name.size_bytes - notice.offset_bytes;
  return allowed ? std::optional{name.region} : std::nullopt;
}

void GrantNames::take_over(GrantNames& before) {
  std::unordered_map<std::uint64_t, Name> names;
  std::deque<std::uint64_t> closed;
  std::uint64_t next_id = 1;
  {
    const MutexLock lock{before.mutex_};
    names = std::exchange(before.names_, {});
    closed = std::exchange(before.closed_, {});
    next_id = before.next_id_;
  }
  const MutexLock lock{mutex_};
  REMORA_ASSERT(next_id_ == 1, "a session resumes another one before it has grants of its own");
  names_ = std::move(names);
  closed_ = std::move(closed);
  next_id_ = next_id;
}

}  // namespace remora::detail
