#include "transport/rdma/reaper.h"

#include <chrono>
#include <exception>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::transport {
namespace {

/// Destruction that takes longer is logged: the device's link is down, or the device hangs.
constexpr std::chrono::seconds kSlow{2};

}  // namespace

Reaper::~Reaper() {
  {
    const detail::MutexLock lock{mutex_};
    ending_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  for (const auto& waiting : waiting_) {
    REMORA_ASSERT(waiting.empty(), "the reaper has destroyed all it took");
  }
}

/// If `item` cannot be queued, it is destroyed here, after the lock is released.
void Reaper::add(std::unique_ptr<Item> item, Kind kind) noexcept {
  try {
    const detail::MutexLock lock{mutex_};
    if (waiting_[kind].size() >= max_waiting_[kind]) return;
    if (!threads_[kind].joinable()) {
      auto thread = detail::start_thread("remora-reaper", [this, kind] { work(kind); });
      if (!thread)
        return log::warn({"lane.ended_at_once", "reason"},
                         "rdma: what is left of a connection is given back at once: {}",
                         thread.error().message());
      threads_[kind] = std::move(*thread);
    }
    waiting_[kind].push_back(std::move(item));
  } catch (const std::exception& error) {
    return log::warn({"lane.ended_at_once", "reason"},
                     "rdma: what is left of a connection is given back at once: {}", error.what());
  }
  more_.notify_all();
}

std::chrono::nanoseconds Reaper::destroying() const noexcept {
  using std::chrono::steady_clock;
  steady_clock::duration all{0};
  const detail::MutexLock lock{mutex_};
  for (const Destroying& each : destroying_) {
    all += each.before;
    if (each.began) all += steady_clock::now() - *each.began;
  }
  return all;
}

void Reaper::work(Kind kind) noexcept {
  while (true) {
    std::unique_ptr<Item> next;
    std::chrono::steady_clock::time_point began;
    {
      detail::MutexLock lock{mutex_};
      auto& waiting = waiting_[kind];
      more_.wait(lock, [this, kind] {
        mutex_.assert_held();
        return ending_ || !waiting_[kind].empty();
      });
      if (waiting.empty()) return;
      next = std::move(waiting.front());
      waiting.pop_front();
      began = std::chrono::steady_clock::now();
      destroying_[kind].began = began;
    }
    next.reset();
    std::chrono::steady_clock::duration took{0};
    {
      const detail::MutexLock lock{mutex_};
      took = std::chrono::steady_clock::now() - began;
      destroying_[kind].before += took;
      destroying_[kind].began.reset();
    }
    if (took < kSlow) continue;
    log::warn({"device.slow", "took_ms"},
              "rdma: the device took {} ms to give a queue pair back: its interface is down, or it "
              "hangs",
              std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  }
}

}  // namespace remora::transport
