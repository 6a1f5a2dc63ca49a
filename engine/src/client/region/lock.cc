#include <algorithm>
#include <utility>

#include <remora/engine/lock.h>

#include "base/closed.h"
#include "client/region/lock_grant.h"
#include "client/region/lock_store.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// How long the release of a lock may take.
constexpr std::chrono::seconds kLetGo{1};

class RegionLockStore final : public LockStore {
 public:
  RegionLockStore(std::shared_ptr<LockGrant> grant, ByteOffset at)
      : grant_{std::move(grant)}, region_{grant_->current()}, at_{at} {}

  [[nodiscard]] const Region& region() const noexcept override { return region_; }
  [[nodiscard]] ByteOffset at() const noexcept override { return at_; }
  Result<std::uint64_t> read_word() noexcept override { return region_.fetch_add(at_, 0); }
  Result<std::uint64_t> swap(std::uint64_t expected, std::uint64_t desired) noexcept override {
    return region_.compare_swap(at_, expected, desired);
  }
  void hold() noexcept override { held_ = true; }
  Status reopen(Deadline deadline) noexcept override {
    if (held_)
      if (auto settled = region_.settled(kLetGo); !settled) return settled.error();
    return take(
        grant_->replace(LockGrant::core_of(region_), std::max(deadline, deadline_after(kLetGo))));
  }
  Status fence() noexcept override { return take(grant_->fence()); }

 private:
  Status take(Result<std::shared_ptr<RegionGrant>> opened) noexcept {
    if (!opened) return opened.error();
    region_ = Region{std::move(*opened)};
    return {};
  }

  std::shared_ptr<LockGrant> grant_;
  Region region_;
  ByteOffset at_;
  bool held_ = false;
};

/// Over rdma an operation makes the writes before it on its own lane visible to other clients. The
/// swap that releases a lock goes over one lane. Where the session has several, what was written
/// under the lock may have gone over others: queues, large writes, writes apart from reads, rails.
void make_writes_visible(const Region& region) noexcept {
  const std::shared_ptr<RegionGrant>& core = LockGrant::core_of(region);
  if (core == nullptr || !includes(core->rights(), Rights::kRead)) return;
  const SessionCore& session = core->session();
  if (session.kind() != TransportKind::kRdma || session.lanes().size() == 1) return;
  // If it fails, the grant is refused, or a lane has broken: then the swap is refused, too, or goes
  // over new lanes, before which the server has ended those with the writes.
  (void)region.flush_visible();
}

/// `error` of a lock, with its server, region and place. Errors of an operation or of opening have
/// them already.
Error of_lock(const Error& error, const Region& region, ByteOffset at) noexcept {
  const std::shared_ptr<RegionGrant>& core = LockGrant::core_of(region);
  if (core == nullptr || !error.server().empty()) return error;
  return core->named(error).with_place(at.bytes, sizeof(std::uint64_t));
}

}  // namespace

std::unique_ptr<LockStore> lock_store(std::shared_ptr<LockGrant> grant, ByteOffset at) {
  return std::make_unique<RegionLockStore>(std::move(grant), at);
}

}  // namespace remora::detail

namespace remora {

Held::Held(std::unique_ptr<detail::LockStore> store, std::uint64_t word) noexcept
    : store_{std::move(store)}, region_{store_->region()}, word_{word} {
  store_->hold();
}
Held::Held(Held&& other) noexcept
    : store_{std::move(other.store_)},
      region_{std::move(other.region_)},
      word_{std::exchange(other.word_, 0)} {}
Held& Held::operator=(Held&& other) noexcept {
  if (this != &other) {
    (void)release();
    store_ = std::move(other.store_);
    region_ = std::move(other.region_);
    word_ = std::exchange(other.word_, 0);
  }
  return *this;
}
Held::~Held() { (void)release(); }

Status Held::renew() {
  if (store_ == nullptr) return detail::closed("lock", store_);
  if (word_ == 0) return detail::of_lock(Error{Code::kClosed, "lock"}, region_, store_->at());
  const std::uint64_t renewed = detail::renewed_lock(word_);
  // By this grant only: if it is fenced, there is no lock to renew.
  const auto before = store_->swap(word_, renewed);
  if (!before && before.error().code() != Code::kIndeterminate) return before.error();
  if (!before || *before != word_)
    if (auto status =
            detail::change_lock(*store_, word_, renewed, Clock::now() + detail::kLetGo, !before);
        !status)
      return detail::of_lock(status.error(), region_, store_->at());
  word_ = renewed;
  return {};
}

Status Held::release() {
  if (store_ == nullptr) return detail::closed("lock", store_);
  if (word_ == 0) return {};
  const std::uint64_t word = std::exchange(word_, 0);
  detail::make_writes_visible(region_);
  const Status released = detail::change_lock(*store_, word, detail::released_lock(word),
                                              Clock::now() + detail::kLetGo);
  return released ? released : detail::of_lock(released.error(), region_, store_->at());
}

Result<Lock> Lock::open(const Region& region, ByteOffset at, const LockOptions& options) {
  constexpr std::chrono::milliseconds kTtlLeast{10};
  constexpr std::chrono::hours kMaxTtl{1};
  const Error wrong{Code::kInvalidArgument, "lock"};
  if (options.ttl < kTtlLeast || options.ttl > kMaxTtl)
    return wrong.with_subject("ttl: 10 ms to 1 h");
  if (const auto& core = detail::LockGrant::owned_by(region); core == nullptr)
    return detail::closed("lock", core);
  const auto refuse = [&](const Error& error) { return detail::of_lock(error, region, at); };
  if (!includes(region.rights(), Rights::kAtomic)) return refuse(Error{Code::kNoRight, "lock"});
  if (at.bytes % sizeof(std::uint64_t) != 0) return refuse(Error{Code::kMisaligned, "lock"});
  if (at.bytes > region.size_bytes() || region.size_bytes() - at.bytes < sizeof(std::uint64_t))
    return refuse(Error{Code::kOutOfRange, "lock"}.with_limit(at.bytes, region.size_bytes()));
  return Lock{std::make_shared<detail::LockGrant>(region), at, options};
}

Result<Held> Lock::acquire(std::chrono::nanoseconds wait) const {
  if (grant_ == nullptr) return detail::closed("lock", grant_);
  auto store = detail::lock_store(grant_.pointer(), at_);
  const auto word = detail::acquire_lock(*store, options_.ttl, wait);
  if (!word) return detail::of_lock(word.error(), store->region(), at_);
  return Held{std::move(store), *word};
}

Result<Held> Lock::try_acquire() const { return acquire(std::chrono::nanoseconds{0}); }

}  // namespace remora
