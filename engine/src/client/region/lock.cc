#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include <remora/engine/lock.h>

#include "base/closed.h"
#include "client/region/lock_core.h"
#include "client/region/region_grant.h"
#include "client/region/region_opener.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

constexpr std::uint64_t kOwnerMask = (std::uint64_t{1} << Held::kOwnerBits) - 1;
constexpr std::chrono::microseconds kPauseLeast{100};
constexpr std::chrono::milliseconds kMaxTryPause{20};

std::mt19937_64& random_numbers() {
  thread_local std::mt19937_64 t_random{std::random_device{}()};
  thread_local std::uint32_t t_process = this_process();
  // Parent and child would draw the same owners: one would take the other's lock for its own.
  if (std::exchange(t_process, this_process()) != this_process())
    t_random.seed(std::random_device{}());
  return t_random;
}

std::uint64_t new_owner() noexcept { return 1 + random_numbers()() % kOwnerMask; }

/// The grant, or its session, has gone: another one may do.
bool worth_another_grant(const Error& error) noexcept {
  const bool taken = error.code() == Code::kAccessRefused &&
                     (error.reason() == Reason::kFenced || error.reason() == Reason::kRevoked);
  return taken || error.code() == Code::kConnectionLost || error.code() == Code::kIndeterminate;
}

/// True: the word is `desired` by our doing. An outcome that is not known is looked up. `unsure`:
/// that of an earlier attempt is not; else a word that is `desired` already is another's.
Result<bool> swap_surely(LockStore& store, std::uint64_t expected, std::uint64_t desired,
                         Deadline deadline, bool unsure) noexcept {
  while (true) {
    const auto before = store.swap(expected, desired);
    if (before) return *before == expected || (unsure && *before == desired);
    unsure = unsure || before.error().code() == Code::kIndeterminate;
    if (!worth_another_grant(before.error()) || Clock::now() >= deadline) return before.error();
    if (auto status = store.reopen(deadline); !status)
      return before.error().code() == Code::kIndeterminate ? before.error() : status.error();
  }
}

/// What a waiter has seen, and since when.
struct Sight {
  std::uint64_t word = 0;
  Clock::time_point since{};

  void see(std::uint64_t now_there) noexcept {
    if (since != Clock::time_point{} && now_there == word) return;
    *this = {now_there, Clock::now()};
  }
};

Result<std::uint64_t> read_surely(LockStore& store, Deadline deadline) noexcept {
  while (true) {
    auto word = store.read_word();
    if (word || !worth_another_grant(word.error()) || Clock::now() >= deadline) return word;
    if (auto status = store.reopen(deadline); !status) return status.error();
  }
}

}  // namespace

std::uint64_t renewed_lock(std::uint64_t word) noexcept {
  std::uint64_t owner = new_owner();
  while (owner == (word & kOwnerMask)) owner = new_owner();
  return (word & ~kOwnerMask) | owner;
}

std::uint64_t released_lock(std::uint64_t word) noexcept { return word & ~kOwnerMask; }

Result<std::uint64_t> acquire_lock(LockStore& store, std::chrono::nanoseconds ttl,
                                   std::chrono::nanoseconds wait) noexcept {
  const bool waits = wait > wait.zero();
  const Deadline deadline = waits ? deadline_after(wait) : Clock::now();
  // What has begun is brought to an end.
  const Deadline finish_by = deadline + ttl;
  std::chrono::nanoseconds pause = kPauseLeast;
  Sight sight;
  while (true) {
    const auto word = read_surely(store, finish_by);
    if (!word) return word.error();
    sight.see(*word);
    const bool free = (*word & kOwnerMask) == 0;
    const bool dead = !free && Clock::now() - sight.since >= ttl;
    if (free || dead) {
      if (*word >> Held::kOwnerBits == ~std::uint64_t{0} >> Held::kOwnerBits)
        return Error{Code::kLimitExceeded, "lock"}.with_limit((*word >> Held::kOwnerBits) + 1,
                                                              *word >> Held::kOwnerBits);
      const std::uint64_t mine =
          released_lock(*word) + (std::uint64_t{1} << Held::kOwnerBits) + new_owner();
      const auto won = swap_surely(store, *word, mine, finish_by, false);
      if (!won) return won.error();
      if (*won && free) return mine;
      if (*won) {
        // Left as it is where this fails: the next one has to fence as well.
        if (auto fenced = store.fence(); !fenced) return fenced.error();
        const auto now_there = read_surely(store, finish_by);
        if (!now_there) return now_there.error();
        // Else we were the ones that took too long.
        if (*now_there == mine) return mine;
      }
      pause = kPauseLeast;
    }
    if (!waits || Clock::now() >= deadline)
      return Error{waits ? Code::kTimedOut : Code::kWouldBlock, "lock"}.with_reason(Reason::kHeld);
    // Not all at the same time.
    std::this_thread::sleep_for(pause / 2 + pause * static_cast<int>(random_numbers()() % 16) / 16);
    pause = std::min<std::chrono::nanoseconds>(
        2 * pause, std::min<std::chrono::nanoseconds>(kMaxTryPause, ttl / 8));
  }
}

Status change_lock(LockStore& store, std::uint64_t word, std::uint64_t desired, Deadline deadline,
                   bool unsure) noexcept {
  const auto changed = swap_surely(store, word, desired, deadline, unsure);
  if (!changed) return changed.error();
  if (!*changed) return Error{Code::kAccessRefused, "lock"}.with_reason(Reason::kFenced);
  return {};
}

namespace {

/// How long the end of a lock is waited for.
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

/// `error` of a lock names its server, region and place. One of an operation or of an opening does
/// that already.
Error of_lock(const Error& error, const Region& region, ByteOffset at) noexcept {
  const std::shared_ptr<RegionGrant>& core = LockGrant::core_of(region);
  if (core == nullptr || !error.server().empty()) return error;
  return core->named(error).with_place(at.bytes, sizeof(std::uint64_t));
}

/// Where the lock is told of by one transport it cannot be by another: atomics do not mix.
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
  std::shared_ptr<RegionGrant> before;  // let go of without the mutex: its end is a request
  {
    const MutexLock lock{mutex_};
    opening_ = false;
    // A fence that has come meanwhile has revoked what was opened before it; its grant is valid.
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
  std::shared_ptr<RegionGrant> before;  // let go of after the mutex
  const MutexLock lock{mutex_};
  before = std::exchange(current_, *opened);
  return opened;
}

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
  // By this grant alone: one that is fenced has nothing to renew.
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
