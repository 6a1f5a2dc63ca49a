#include "transport/rdma/window_lane.h"

#include <algorithm>
#include <array>
#include <new>
#include <thread>

#include <remora/assert.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/device.h>

#include "base/log.h"
#include "transport/rdma/wrong_completion.h"

namespace remora::transport::rdma {

namespace {

/// The number of polls before the thread sleeps for the first time: a NIC binds within
/// microseconds.
constexpr int kLooksAtOnce = 64;
constexpr std::chrono::microseconds kLookPause{20};

}  // namespace

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
                                                    verbs::Access rights, Deadline deadline) {
  const remora::detail::MutexLock lock{mutex_};
  if (pair_ == nullptr || ending_.load()) return gone();
  auto at = bound_.find(owner);
  if (at == bound_.end()) {
    auto windows = allocate(stretches.size(), deadline);
    if (!windows) return windows.error();
    if (auto status = bind_all(*windows, stretches, rights, deadline); !status) {
      (void)release(*windows);  // the owner's drop() reports the error again
      return status.error();
    }
    at = bound_.emplace(owner, std::move(*windows)).first;
  }
  REMORA_ASSERT(at->second.size() == stretches.size(), "each stretch of a grant has a window");
  std::vector<std::uint32_t> keys;
  keys.reserve(at->second.size());
  for (const verbs::MemoryWindow& window : at->second) keys.push_back(window.rkey());
  return keys;
}

Result<std::vector<verbs::MemoryWindow>> WindowLane::allocate(std::size_t count,
                                                              Deadline deadline) {
  std::vector<verbs::MemoryWindow> windows;
  windows.reserve(count);
  std::vector<verbs::MemoryWindow> used_up;  // kept meanwhile, or the device would give them again
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
                            std::span<const LeasedRange> stretches, verbs::Access rights,
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
      // Requests of a queue pair complete in their order, each once.
      if (completion.id() != first_id + done) return wrong_completion(queue_.device(), completion);
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
  // An error here is also returned by drop() as long as the lane is not destroyed.
  for (auto& [owner, windows] : bound_) (void)release(windows);
  bound_.clear();
  pair_ = nullptr;
}

}  // namespace remora::transport::rdma
