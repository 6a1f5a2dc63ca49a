#include "transport/rdma/window_grant.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <remora/assert.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/device.h>

#include "base/log.h"
#include "base/parallel_steps.h"

namespace remora::transport::rdma {

namespace {

using verbs::Access;

/// A NIC binds within microseconds: polls before the thread sleeps for the first time.
constexpr int kLooksAtOnce = 64;
constexpr std::chrono::microseconds kLookPause{20};

/// What a window may take beyond what a device may take for any number of them, so that a grant of
/// very many gets on.
constexpr std::chrono::milliseconds kWindowTime{1};

/// As long as a piece of the pool at most; NICs of a common kind refuse more than 2 GiB.
constexpr std::uint64_t kMaxWindowBytes = std::uint64_t{1} << 30U;

constexpr Access kLeasedAccess = Access::kLocalWrite | Access::kWindowBind;

/// Threads that register the pool, and the bytes for which a device needs long enough that another
/// one gains time. More threads wait for the kernel, which counts the pinned pages of a process.
constexpr std::size_t kMaxRegistrars = 4;
constexpr std::uint64_t kRegistrarBytes = std::uint64_t{1} << 30U;

/// In the order of `pieces`. A large pool is registered by several threads.
Result<std::vector<verbs::MemoryRegion>> register_all(
    const verbs::ProtectionDomain& domain, std::span<const MemoryStretch> pieces,
    const std::stop_token& stop, const std::function<void(std::uint64_t)>& on_step) {
  std::uint64_t all_bytes = 0;
  for (const MemoryStretch& piece : pieces) all_bytes += piece.length_bytes;
  std::vector<std::optional<verbs::MemoryRegion>> made(pieces.size());
  const auto register_one = [&](std::size_t index) -> Status {
    const MemoryStretch& piece = pieces[index];
    auto memory = domain.register_bytes({piece.address, piece.length_bytes}, kLeasedAccess);
    if (!memory) return memory.error();
    made[index].emplace(std::move(*memory));
    return {};
  };
  remora::detail::StepOptions options{
      .threads_max = std::min<std::uint64_t>(
          {kMaxRegistrars, remora::detail::usable_processors(), all_bytes / kRegistrarBytes}),
      .stop = stop};
  if (on_step)
    options.on_step = [&](std::size_t done) {
      on_step(done == made.size() ? all_bytes : all_bytes / made.size() * done);
    };
  const remora::detail::StepsDone steps =
      remora::detail::run_steps(pieces.size(), register_one, options);
  if (steps.failed) return *steps.failed;
  if (steps.stopped) return Error{Code::kCancelled, "register the pool"};
  std::vector<verbs::MemoryRegion> registered;
  registered.reserve(pieces.size());
  for (std::optional<verbs::MemoryRegion>& each : made) registered.push_back(std::move(*each));
  return registered;
}

}  // namespace

Access remote_access(Rights rights) noexcept {
  Access access = Access::kNone;
  if (includes(rights, Rights::kRead)) access |= Access::kRemoteRead;
  if (includes(rights, Rights::kWrite)) access |= Access::kRemoteWrite;
  if (includes(rights, Rights::kAtomic)) access |= Access::kRemoteAtomic;
  return access;
}

Access remote_access(Rights rights, const verbs::Device& device) noexcept {
  const Access asked = remote_access(rights);
  if (device.attributes().atomics != verbs::AtomicSupport::kNone) return asked;
  return asked & (Access::kRemoteRead | Access::kRemoteWrite);
}

LeasedMemory::LeasedMemory(std::shared_ptr<void> hold, verbs::ProtectionDomain domain,
                           Budgets budgets, BudgetShare share,
                           std::vector<verbs::MemoryRegion> pieces) noexcept
    : hold_{std::move(hold)},
      domain_{std::move(domain)},
      budgets_{std::move(budgets)},
      share_{std::move(share)},
      pieces_{std::move(pieces)} {}

Result<std::shared_ptr<const LeasedMemory>> LeasedMemory::create(
    const verbs::Device& device, std::span<const MemoryStretch> pieces, std::shared_ptr<void> hold,
    Budgets budgets, const std::stop_token& stop,
    const std::function<void(std::uint64_t done_bytes)>& on_step) {
  auto share = BudgetShare::take(budgets.registrations, pieces.size());
  if (!share) return share.error();
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  auto made = register_all(*domain, pieces, stop, on_step);
  if (!made) return made.error();
  std::vector<verbs::MemoryRegion> registered = std::move(*made);
  std::sort(registered.begin(), registered.end(),
            [](const auto& a, const auto& b) { return a.address() < b.address(); });
  return std::shared_ptr<const LeasedMemory>{new LeasedMemory{std::move(hold), std::move(*domain),
                                                              std::move(budgets), std::move(*share),
                                                              std::move(registered)}};
}

std::optional<LeasedRange> LeasedMemory::find(const MemoryStretch& stretch) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(stretch.address);
  const auto behind =
      std::upper_bound(pieces_.begin(), pieces_.end(), address,
                       [](std::uint64_t at, const auto& piece) { return at < piece.address(); });
  if (behind == pieces_.begin()) return std::nullopt;
  const verbs::MemoryRegion& piece = *std::prev(behind);
  const std::uint64_t offset = address - piece.address();
  if (offset > piece.length_bytes() || stretch.length_bytes > piece.length_bytes() - offset)
    return std::nullopt;
  return LeasedRange{&piece, offset, stretch.length_bytes};
}

bool LeasedMemory::covers(std::span<const MemoryStretch> stretches) const noexcept {
  return std::all_of(stretches.begin(), stretches.end(),
                     [this](const MemoryStretch& each) { return find(each).has_value(); });
}

Result<std::shared_ptr<WindowLane>> WindowLane::create(const verbs::Device& device) {
  auto queue = device.create_completion_queue({.depth = 2 * kBinds});
  if (!queue) return queue.error();
  return std::make_shared<WindowLane>(std::move(*queue));
}

Error WindowLane::gone() {
  return Error{Code::kConnectionLost, "binding windows"}.with_reason(Reason::kLaneBroken);
}

void WindowLane::begin(verbs::QueuePair<verbs::Rc>& pair) {
  const remora::detail::MutexLock lock{mutex_};
  REMORA_ASSERT(pair_ == nullptr, "a lane is connected once");
  pair_ = &pair;
}

bool WindowLane::has(Owner owner) {
  const remora::detail::MutexLock lock{mutex_};
  return bound_.contains(owner);
}

Result<std::vector<std::uint32_t>> WindowLane::bind(Owner owner,
                                                    std::span<const LeasedRange> stretches,
                                                    Access rights, Deadline deadline) {
  const remora::detail::MutexLock lock{mutex_};
  if (pair_ == nullptr || ending_.load()) return gone();
  auto at = bound_.find(owner);
  if (at == bound_.end()) {
    auto windows = allocate(stretches.size(), deadline);
    if (!windows) return windows.error();
    if (auto status = bind_all(*windows, stretches, rights, deadline); !status) {
      (void)release(*windows);  // the owner's drop() says it again
      return status.error();
    }
    at = bound_.emplace(owner, std::move(*windows)).first;
  }
  std::vector<std::uint32_t> keys;
  keys.reserve(at->second.size());
  for (const verbs::MemoryWindow& window : at->second) keys.push_back(window.rkey());
  return keys;
}

Result<std::vector<verbs::MemoryWindow>> WindowLane::allocate(std::size_t count,
                                                              Deadline deadline) {
  std::vector<verbs::MemoryWindow> windows;
  windows.reserve(count);
  std::vector<verbs::MemoryWindow> used_up;  // kept meanwhile: the device would give them again
  while (windows.size() < count) {
    if (ending_.load()) return gone();
    if (Clock::now() >= deadline) return Error{Code::kTimedOut, "allocating windows"};
    auto window = pair_->allocate_window();
    if (!window) return window.error();
    if (choose_new_key(*window))
      windows.push_back(std::move(*window));
    else
      used_up.push_back(std::move(*window));
  }
  return windows;
}

bool WindowLane::choose_new_key(verbs::MemoryWindow& window) const {
  constexpr int kKeysOfAWindow = 256;
  for (int i = 0; i < kKeysOfAWindow; ++i) {
    if (!given_up_.contains(window.next_rkey())) return true;
    window.skip_rkey();
  }
  return false;
}

void WindowLane::give_up_key(const verbs::MemoryWindow& window) noexcept try {
  if (!given_up_.insert(window.rkey()).second) return;
  given_up_order_.push_back(window.rkey());
  if (given_up_order_.size() <= kMaxGivenUp) return;
  given_up_.erase(given_up_order_.front());
  given_up_order_.pop_front();
} catch (const std::bad_alloc&) {
  return;
}

void WindowLane::move_to_error(const Error& why) noexcept {
  if (in_error_ || pair_ == nullptr) return;
  log::debug("rdma: queue pair {}: {}; it ends", pair_->number(), why.message());
  in_error_ = pair_->to_error().ok();
}

Status WindowLane::release(std::span<verbs::MemoryWindow> windows) noexcept {
  for (verbs::MemoryWindow& window : windows)
    if (const Status freed = window.free(); !freed) left_ = freed.error();
  return check_left();
}

Status WindowLane::check_left() noexcept {
  if (!left_) return {};
  move_to_error(*left_);
  if (in_error_ || queue_.device().gone()) return {};
  return *left_;
}

Status WindowLane::bind_all(std::span<verbs::MemoryWindow> windows,
                            std::span<const LeasedRange> stretches, Access rights,
                            Deadline deadline) {
  for (std::size_t first = 0; first < windows.size(); first += kBinds) {
    if (ending_.load()) return gone();
    const std::size_t count = std::min<std::size_t>(kBinds, windows.size() - first);
    const std::uint64_t first_id = next_id_;
    next_id_ += count;
    auto batch = pair_->start();
    for (std::size_t i = 0; i < count; ++i) {
      const LeasedRange& stretch = stretches[first + i];
      batch.bind_window(first_id + i, windows[first + i], *stretch.memory, stretch.offset_bytes,
                        stretch.length_bytes, rights);
    }
    if (auto status = batch.post(); !status) {
      if (batch.taken() != 0) move_to_error(status.error());
      return status;
    }
    const Deadline answered = std::min(deadline, Clock::now() + kChainTime);
    if (auto status = await(first_id, count, answered); !status) {
      move_to_error(status.error());
      return status;
    }
  }
  return {};
}

Status WindowLane::await(std::uint64_t first_id, std::size_t count, Deadline deadline) {
  std::size_t done = 0;
  for (int looks = 0; done < count; ++looks) {
    std::array<verbs::Completion, kBinds> storage;
    const auto found = queue_.poll(storage);
    if (!found) return found.error();
    for (const verbs::Completion& completion : *found) {
      if (completion.id() < first_id) continue;
      if (completion.status() == CompletionStatus::kFlushed) return gone();
      if (!completion.ok())
        return Error{Code::kProvider, "binding windows"}.with_completion(completion.status(),
                                                                         completion.vendor_error());
      ++done;
    }
    if (!found->empty()) continue;
    if (ending_.load()) return gone();
    if (Clock::now() >= deadline) return Error{Code::kTimedOut, "binding windows"};
    if (looks >= kLooksAtOnce) std::this_thread::sleep_for(kLookPause);
  }
  return {};
}

Status WindowLane::drop(Owner owner) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  const auto found = bound_.find(owner);
  if (found == bound_.end()) return check_left();
  for (const verbs::MemoryWindow& window : found->second) give_up_key(window);
  const Status released = release(found->second);
  bound_.erase(found);
  return released;
}

void WindowLane::end() noexcept {
  stop();
  const remora::detail::MutexLock lock{mutex_};
  // What fails here, drop() says for as long as the lane is not destroyed.
  for (auto& [owner, windows] : bound_) (void)release(windows);
  bound_.clear();
  pair_ = nullptr;
}

Result<std::unique_ptr<WindowGrant>> WindowGrant::create(std::shared_ptr<const LeasedMemory> leased,
                                                         const GrantRequest& request) {
  const Access rights = remote_access(request.rights, leased->domain().device());
  std::unique_ptr<WindowGrant> made{new WindowGrant{std::move(leased), request, rights}};
  const LeasedMemory& memory = *made->leased_;
  const auto is_own = [&](const MemoryStretch& stretch) { return !memory.find(stretch); };
  const auto own = static_cast<std::size_t>(
      std::count_if(request.extents.begin(), request.extents.end(), is_own));
  if (own != 0) {
    auto share = BudgetShare::take(memory.budgets().registrations, own);
    if (!share) return share.error();
    made->own_share_.emplace(std::move(*share));
  }
  if (own != 0 && memory.budgets().bytes != nullptr) {
    std::uint64_t own_bytes = 0;
    for (const MemoryStretch& stretch : request.extents)
      if (is_own(stretch)) own_bytes += stretch.length_bytes;
    auto share = BudgetShare::take(memory.budgets().bytes, own_bytes);
    if (!share) return share.error();
    made->own_bytes_share_.emplace(std::move(*share));
  }
  made->own_.reserve(own);  // what points at them stays right
  for (const MemoryStretch& stretch : request.extents) {
    if (const auto found = memory.find(stretch)) {
      made->stretches_.push_back(*found);
      continue;
    }
    auto registered =
        memory.domain().register_bytes({stretch.address, stretch.length_bytes}, kLeasedAccess);
    if (!registered) return registered.error();
    made->own_.push_back(std::move(*registered));
    for (std::uint64_t at = 0; at < stretch.length_bytes; at += kMaxWindowBytes)
      made->stretches_.push_back(
          {&made->own_.back(), at, std::min(kMaxWindowBytes, stretch.length_bytes - at)});
  }
  return made;
}

WindowGrant::~WindowGrant() { (void)forget_lanes_but({}); }

void WindowGrant::leave_device() noexcept {
  (void)forget_lanes_but({});  // a device that has gone carries out no request
  stretches_.clear();
  own_.clear();
  own_share_.reset();
  own_bytes_share_.reset();
  share_.reset();
  lanes_admitted_ = 0;
  leased_.reset();
}

/// Its windows on those of before go, whether or not they have ended. A lane that may still serve
/// them stays known, so that the next call asks it again.
Status WindowGrant::forget_lanes_but(const WindowLanes& lanes) noexcept {
  Status status;
  std::erase_if(lanes_, [&](const std::weak_ptr<WindowLane>& known) {
    const auto lane = known.lock();
    if (lane == nullptr || std::find(lanes.begin(), lanes.end(), lane) != lanes.end()) return true;
    const Status dropped = lane->drop(this);
    if (!dropped) status = dropped;
    return dropped.ok();
  });
  return status;
}

/// Before the device is asked: what others need is left to them.
Status WindowGrant::reserve(std::size_t lanes) {
  if (lanes <= lanes_admitted_) return {};
  const std::uint64_t more = std::uint64_t{lanes - lanes_admitted_} * stretches_.size();
  auto share = BudgetShare::take(leased_->budgets().windows, more);
  if (!share) return share.error();
  if (share_)
    share_->join(std::move(*share));
  else
    share_.emplace(std::move(*share));
  lanes_admitted_ = lanes;
  return {};
}

Status WindowGrant::renew(const WindowLanes& lanes, std::vector<WireExtent>& extents,
                          LaneKeys& keys, Deadline deadline) {
  (void)forget_lanes_but(lanes);  // revoke() asks again
  std::size_t all = 0;
  std::size_t without = 0;
  for (const auto& lane : lanes) {
    if (lane == nullptr) continue;
    lanes_.emplace_back(lane);
    ++all;
    if (!lane->has(this)) ++without;
  }
  if (auto status = reserve(all); !status) return status;
  deadline += kWindowTime * (without * stretches_.size());
  LaneKeys made{.lanes = lanes.size(), .keys = {}};
  made.keys.resize(stretches_.size() * lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane] == nullptr) continue;
    const auto bound = lanes[lane]->bind(this, stretches_, rights_, deadline);
    if (!bound) return bound.error();
    for (std::size_t i = 0; i < bound->size(); ++i)
      made.keys[i * lanes.size() + lane] = (*bound)[i];
  }
  keys = std::move(made);
  extents.resize(stretches_.size());
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    extents[i] = {.start_bytes = start,
                  .length_bytes = stretches_[i].length_bytes,
                  .remote_address = stretches_[i].address(),
                  .remote_key = lanes.empty() ? 0 : keys.keys[i * lanes.size()]};
    start += stretches_[i].length_bytes;
  }
  return {};
}

}  // namespace remora::transport::rdma
