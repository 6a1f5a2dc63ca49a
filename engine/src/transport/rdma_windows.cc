#include "transport/rdma_windows.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include <remora/verbs/completion.h>
#include <remora/verbs/device.h>

#include "support/log.h"

namespace remora::transport::rdma {

namespace {

using verbs::Access;

/// A NIC binds within microseconds: looked at that often before anybody sleeps.
constexpr int kLooksAtOnce = 64;
constexpr std::chrono::microseconds kLookPause{20};

/// What a window may take beyond what a device may take for any number of them, so that a grant of
/// very many gets on.
constexpr std::chrono::milliseconds kWindowTime{1};

/// As long as a piece of the pool at most; NICs of a common kind refuse more than 2 GiB.
constexpr std::uint64_t kWindowBytesMost = std::uint64_t{1} << 30U;

constexpr Access kLentAccess = Access::kLocalWrite | Access::kWindowBind;

}  // namespace

Access remote_access(Rights rights) noexcept {
  Access access = Access::kNone;
  if (includes(rights, Rights::kRead)) access |= Access::kRemoteRead;
  if (includes(rights, Rights::kWrite)) access |= Access::kRemoteWrite;
  if (includes(rights, Rights::kAtomic)) access |= Access::kRemoteAtomic;
  return access;
}

LentMemory::LentMemory(std::shared_ptr<void> hold, verbs::ProtectionDomain domain, Budgets budgets,
                       BudgetShare share, std::vector<verbs::MemoryRegion> pieces) noexcept
    : hold_{std::move(hold)},
      domain_{std::move(domain)},
      budgets_{std::move(budgets)},
      share_{std::move(share)},
      pieces_{std::move(pieces)} {}

Result<std::shared_ptr<const LentMemory>> LentMemory::create(const verbs::Device& device,
                                                             std::span<const MemoryStretch> pieces,
                                                             std::shared_ptr<void> hold,
                                                             Budgets budgets) {
  auto share = BudgetShare::take(budgets.registrations, pieces.size());
  if (!share) return share.error();
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  std::vector<verbs::MemoryRegion> registered;
  registered.reserve(pieces.size());
  for (const MemoryStretch& piece : pieces) {
    auto memory = domain->register_bytes({piece.address, piece.length_bytes}, kLentAccess);
    if (!memory) return memory.error();
    registered.push_back(std::move(*memory));
  }
  std::sort(registered.begin(), registered.end(),
            [](const auto& a, const auto& b) { return a.address() < b.address(); });
  return std::shared_ptr<const LentMemory>{new LentMemory{std::move(hold), std::move(*domain),
                                                          std::move(budgets), std::move(*share),
                                                          std::move(registered)}};
}

std::optional<LentStretch> LentMemory::find(const MemoryStretch& stretch) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(stretch.address);
  const auto behind =
      std::upper_bound(pieces_.begin(), pieces_.end(), address,
                       [](std::uint64_t at, const auto& piece) { return at < piece.address(); });
  if (behind == pieces_.begin()) return std::nullopt;
  const verbs::MemoryRegion& piece = *std::prev(behind);
  const std::uint64_t offset = address - piece.address();
  if (offset > piece.length_bytes() || stretch.length_bytes > piece.length_bytes() - offset)
    return std::nullopt;
  return LentStretch{&piece, offset, stretch.length_bytes};
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
  const std::lock_guard lock{mutex_};
  pair_ = &pair;
}

bool WindowLane::has(Owner owner) {
  const std::lock_guard lock{mutex_};
  return bound_.contains(owner);
}

Result<std::vector<std::uint32_t>> WindowLane::bind(Owner owner,
                                                    std::span<const LentStretch> stretches,
                                                    Access rights, BudgetShare& share,
                                                    Deadline deadline) {
  const std::lock_guard lock{mutex_};
  if (pair_ == nullptr || ending_.load()) return gone();
  auto at = bound_.find(owner);
  if (at == bound_.end()) {
    std::vector<verbs::MemoryWindow> windows;
    windows.reserve(stretches.size());
    for (std::size_t i = 0; i < stretches.size(); ++i) {
      if (ending_.load()) return gone();  // whoever ends it waits
      auto window = pair_->allocate_window();
      if (!window) return window.error();
      windows.push_back(std::move(*window));
    }
    if (auto status = bind_all(windows, stretches, rights, deadline); !status) {
      log::debug("rdma: queue pair {}: {}", pair_->number(), status.error().message());
      (void)pair_->to_error();
      return status.error();
    }
    at = bound_.emplace(owner, Bound{share.split(windows.size()), std::move(windows)}).first;
  }
  std::vector<std::uint32_t> keys;
  keys.reserve(at->second.windows.size());
  for (const verbs::MemoryWindow& window : at->second.windows) keys.push_back(window.rkey());
  return keys;
}

/// With the lock.
Status WindowLane::bind_all(std::span<verbs::MemoryWindow> windows,
                            std::span<const LentStretch> stretches, Access rights,
                            Deadline deadline) {
  for (std::size_t first = 0; first < windows.size(); first += kBinds) {
    if (ending_.load()) return gone();
    const std::size_t count = std::min<std::size_t>(kBinds, windows.size() - first);
    const std::uint64_t first_id = next_id_;
    next_id_ += count;
    auto batch = pair_->start();
    for (std::size_t i = 0; i < count; ++i) {
      const LentStretch& stretch = stretches[first + i];
      batch.bind_window(first_id + i, windows[first + i], *stretch.memory, stretch.offset_bytes,
                        stretch.length_bytes, rights);
    }
    if (auto status = batch.post(); !status) return status.error();
    if (auto status = await(first_id, count, deadline); !status) return status.error();
  }
  return {};
}

/// With the lock.
Status WindowLane::await(std::uint64_t first_id, std::size_t count, Deadline deadline) {
  std::size_t done = 0;
  for (int looks = 0; done < count; ++looks) {
    std::array<verbs::Completion, kBinds> storage;
    const auto found = queue_.poll(storage);
    if (!found) return found.error();
    for (const verbs::Completion& completion : *found) {
      if (completion.id() < first_id) continue;
      if (!completion.ok())
        return gone().with_completion(completion.status(), completion.vendor_error());
      ++done;
    }
    if (!found->empty()) continue;
    if (ending_.load()) return gone();
    if (Clock::now() >= deadline) return Error{Code::kTimedOut, "binding windows"};
    if (looks >= kLooksAtOnce) std::this_thread::sleep_for(kLookPause);
  }
  return {};
}

void WindowLane::drop(Owner owner) noexcept {
  const std::lock_guard lock{mutex_};
  bound_.erase(owner);
}

void WindowLane::end() noexcept {
  ending_.store(true);
  const std::lock_guard lock{mutex_};
  bound_.clear();
  pair_ = nullptr;
}

Result<std::unique_ptr<WindowGrant>> WindowGrant::create(std::shared_ptr<const LentMemory> lent,
                                                         const GrantRequest& request) {
  std::unique_ptr<WindowGrant> made{
      new WindowGrant{std::move(lent), remote_access(request.rights)}};
  const LentMemory& memory = *made->lent_;
  const auto is_own = [&](const MemoryStretch& stretch) { return !memory.find(stretch); };
  const auto own = static_cast<std::size_t>(
      std::count_if(request.extents.begin(), request.extents.end(), is_own));
  if (own != 0) {
    auto share = BudgetShare::take(memory.budgets().registrations, own);
    if (!share) return share.error();
    made->own_share_.emplace(std::move(*share));
  }
  made->own_.reserve(own);  // what points at them stays right
  for (const MemoryStretch& stretch : request.extents) {
    if (const auto found = memory.find(stretch)) {
      made->stretches_.push_back(*found);
      continue;
    }
    auto registered =
        memory.domain().register_bytes({stretch.address, stretch.length_bytes}, kLentAccess);
    if (!registered) return registered.error();
    made->own_.push_back(std::move(*registered));
    for (std::uint64_t at = 0; at < stretch.length_bytes; at += kWindowBytesMost)
      made->stretches_.push_back(
          {&made->own_.back(), at, std::min(kWindowBytesMost, stretch.length_bytes - at)});
  }
  return made;
}

WindowGrant::~WindowGrant() { forget_lanes_but({}); }

/// Its windows on those of before go, whether or not they have ended.
void WindowGrant::forget_lanes_but(const WindowLanes& lanes) noexcept {
  for (const auto& known : lanes_)
    if (const auto lane = known.lock())
      if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lane->drop(this);
  lanes_.clear();
}

/// Before the device is asked: what others need is left to them.
Result<BudgetShare> WindowGrant::share_for(std::size_t lanes_without, std::size_t lanes_all) {
  const std::uint64_t count = std::uint64_t{lanes_without} * stretches_.size();
  const std::shared_ptr<Budget>& budget = lent_->budgets().windows;
  if (lanes_all <= lanes_had_) return BudgetShare::count(budget, count);
  auto share = BudgetShare::take(budget, count);
  if (share) lanes_had_ = lanes_all;
  return share;
}

Status WindowGrant::renew(const WindowLanes& lanes, std::vector<WireExtent>& extents,
                          LaneKeys& keys, Deadline deadline) {
  forget_lanes_but(lanes);
  std::size_t all = 0;
  std::size_t without = 0;
  for (const auto& lane : lanes) {
    if (lane == nullptr) continue;
    lanes_.emplace_back(lane);
    ++all;
    if (!lane->has(this)) ++without;
  }
  auto share = share_for(without, all);
  if (!share) return share.error();
  deadline += kWindowTime * (without * stretches_.size());
  LaneKeys made{.lanes = lanes.size(), .keys = {}};
  made.keys.resize(stretches_.size() * lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane] == nullptr) continue;
    const auto bound = lanes[lane]->bind(this, stretches_, rights_, *share, deadline);
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
