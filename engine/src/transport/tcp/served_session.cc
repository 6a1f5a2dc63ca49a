#include "transport/tcp/served_session.h"

#include <algorithm>
#include <cerrno>
#include <sys/eventfd.h>
#include <utility>

#include <remora/assert.h>

#include "transport/tcp/server_lane.h"

namespace remora::transport::tcp {

namespace {

class TcpGrant final : public GrantHandle {
 public:
  TcpGrant(std::shared_ptr<ServedSession> session, std::vector<std::uint32_t> keys) noexcept
      : session_{std::move(session)}, keys_{std::move(keys)} {}
  ~TcpGrant() override { session_->revoke(keys_); }
  TcpGrant(const TcpGrant&) = delete;
  TcpGrant& operator=(const TcpGrant&) = delete;

 private:
  std::shared_ptr<ServedSession> session_;
  std::vector<std::uint32_t> keys_;
};

}  // namespace

ServedCounts& ServedCounts::operator+=(const ServedCounts& more) noexcept {
  for (std::size_t i = 0; i < operations.size(); ++i) operations[i] += more.operations[i];
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += more.bytes[i];
  refused += more.refused;
  corrupt += more.corrupt;
  return *this;
}

void ServedSession::add_counts(const ServedCounts& served) noexcept {
  const auto raise = [](std::atomic<std::uint64_t>& total, std::uint64_t by) {
    if (by != 0) total.store(total.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < served.operations.size(); ++i)
    raise(operations_served_[i], served.operations[i]);
  for (std::size_t i = 0; i < served.bytes.size(); ++i) raise(bytes_served_[i], served.bytes[i]);
}

ServedCounts ServedSession::served() const noexcept {
  ServedCounts all;
  for (std::size_t i = 0; i < all.operations.size(); ++i)
    all.operations[i] = operations_served_[i].load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < all.bytes.size(); ++i)
    all.bytes[i] = bytes_served_[i].load(std::memory_order_relaxed);
  return all;
}

Result<std::shared_ptr<ServedSession>> ServedSession::create(ThreadSeat seat) {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!event) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  return std::make_shared<ServedSession>(std::move(event), std::move(seat));
}

Result<Grant> ServedSession::grant(const GrantRequest& request) {
  Grant made;
  std::vector<std::uint32_t> keys;
  keys.reserve(request.extents.size());
  made.extents.reserve(request.extents.size());
  std::uint64_t start = 0;
  Status status;
  if (!request.keys.empty() && request.keys.size() != request.extents.size())
    return Error{Code::kInvalidArgument, "keys of other extents"};
  {
    const Exclusive lock{*this};
    if (ended_) return Error{Code::kConnectionLost, "open"};
    for (const MemoryStretch& stretch : request.extents) {
      const GrantedExtent extent{.memory = stretch.address,
                                 .start_bytes = start,
                                 .length_bytes = stretch.length_bytes,
                                 .rights = request.rights,
                                 .cpu_atomics = request.cpu_atomics};
      auto key =
          request.keys.empty() ? grants_.add(extent) : add_as(request.keys[keys.size()], extent);
      if (!key) {
        status = key.error();
        break;
      }
      keys.push_back(*key);
      made.extents.push_back({.start_bytes = start,
                              .length_bytes = stretch.length_bytes,
                              .remote_address = start,
                              .remote_key = *key});
      start += stretch.length_bytes;
    }
  }
  made.handle = std::make_unique<TcpGrant>(shared_from_this(), std::move(keys));
  if (!status) return status.error();  // the handle revokes the extents added so far
  return made;
}

Result<std::uint32_t> ServedSession::add_as(std::uint32_t key, const GrantedExtent& extent) {
  if (auto added = grants_.add_as(key, extent); !added) return added.error();
  return key;
}

void ServedSession::revoke(std::span<const std::uint32_t> keys) noexcept {
  const Exclusive lock{*this};
  for (const std::uint32_t key : keys) {
    grants_.remove(key);
    for (const auto& lane : lanes_)
      if (lane->touches(key)) lane->abort();
  }
}

Status ServedSession::add_lane(const std::shared_ptr<ServerLane>& lane) {
  const Exclusive lock{*this};
  if (ended_) return Error{Code::kConnectionLost, "lane"};
  if (lanes_.size() >= kMaxLanes)
    return Error{Code::kLimitExceeded, "lanes"}.with_limit(lanes_.size() + 1, kMaxLanes);
  lanes_.push_back(lane);
  return {};
}

void ServedSession::lane_ended(const ServerLane& lane) noexcept {
  const Exclusive lock{*this};
  // A lane that end() has dropped is not missing, also not after the session has begun again.
  if (std::erase_if(lanes_, [&](const auto& each) { return each.get() == &lane; }) == 0) return;
  broken_.store(true, std::memory_order_release);
  ::eventfd_write(event_.get(), 1);
}

bool ServedSession::put_notice(const Notice& notice) {
  mutex_.assert_held();  // by serve(), in whose step the lane calls this
  if (notices_.size() >= kMaxNotices) return false;
  notices_.push_back(notice);
  ::eventfd_write(event_.get(), 1);
  return true;
}

std::pair<std::size_t, bool> ServedSession::take_notices(std::span<Notice> notices) noexcept {
  const Exclusive lock{*this};
  const bool was_full = notices_.size() >= kMaxNotices;
  const std::size_t count = std::min(notices.size(), notices_.size());
  std::copy_n(notices_.begin(), count, notices.begin());
  notices_.erase(notices_.begin(), notices_.begin() + static_cast<std::ptrdiff_t>(count));
  return {count, was_full};
}

void ServedSession::take_event() noexcept {
  eventfd_t value = 0;
  ::eventfd_read(event_.get(), &value);
  if (broken()) ::eventfd_write(event_.get(), 1);
}

void ServedSession::end() noexcept {
  const Exclusive lock{*this};
  ended_ = true;
  for (const auto& lane : lanes_) lane->abort();
  lanes_.clear();
}

void ServedSession::begin_again() noexcept {
  const Exclusive lock{*this};
  REMORA_ASSERT(ended_ && lanes_.empty(), "a session begins again when its old lanes have gone");
  ended_ = false;
  notices_.clear();  // taken at the end, as far as the application had room
  broken_.store(false, std::memory_order_release);
  eventfd_t value = 0;
  ::eventfd_read(event_.get(), &value);
}

}  // namespace remora::transport::tcp
