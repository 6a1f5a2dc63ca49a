#include "transport/rdma/reaper.h"

#include <chrono>
#include <exception>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::transport {
namespace {

/// Destruction that takes longer is logged: the device is down, or hangs.
constexpr std::chrono::seconds kSlow{2};

}  // namespace

Reaper::~Reaper() {
  {
    const detail::MutexLock lock{mutex_};
    ending_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
  REMORA_ASSERT(waiting_.empty(), "the reaper has destroyed all it took");
}

/// Where it cannot wait, `item` ends here, behind the lock.
void Reaper::add(std::unique_ptr<Item> item) noexcept {
  try {
    const detail::MutexLock lock{mutex_};
    if (waiting_.size() >= max_waiting_) return;
    if (!thread_.joinable()) {
      auto thread = detail::start_thread("remora-reaper", [this] { work(); });
      if (!thread)
        return log::warn("rdma: what is left of a connection is given back at once: {}",
                         thread.error().message());
      thread_ = std::move(*thread);
    }
    waiting_.push_back(std::move(item));
  } catch (const std::exception& error) {
    return log::warn("rdma: what is left of a connection is given back at once: {}", error.what());
  }
  more_.notify_one();
}

void Reaper::work() noexcept {
  while (true) {
    std::unique_ptr<Item> next;
    {
      detail::MutexLock lock{mutex_};
      more_.wait(lock, [this] {
        mutex_.assert_held();
        return ending_ || !waiting_.empty();
      });
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const auto began = std::chrono::steady_clock::now();
    next.reset();
    const auto took = std::chrono::steady_clock::now() - began;
    if (took < kSlow) continue;
    log::warn(
        "rdma: the device took {} ms to give a queue pair back: its interface is down, or it "
        "hangs",
        std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  }
}

}  // namespace remora::transport
