#include "transport/tcp/io_threads.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"

namespace remora::transport::tcp {

std::uint32_t IoThreads::automatic_count(std::uint32_t processors) noexcept {
  constexpr std::uint32_t kMaxAutomatic = 8;
  return std::clamp<std::uint32_t>(processors / 4, 1, kMaxAutomatic);
}

Result<std::shared_ptr<IoThreads>> IoThreads::start(const ServedMetrics& metrics,
                                                    std::chrono::nanoseconds spin,
                                                    std::uint32_t wanted) {
  const std::uint32_t count =
      wanted != 0 ? wanted : automatic_count(std::thread::hardware_concurrency());
  std::vector<std::shared_ptr<IoThread>> threads;
  while (threads.size() < count) {
    auto thread = IoThread::start(metrics, spin);
    if (!thread && (wanted != 0 || threads.empty())) return thread.error();
    if (!thread) {
      log::warn({"server.threads_missing", "threads wanted reason"},
                "tcp: {} of {} threads serve: {}", threads.size(), count, thread.error().message());
      break;
    }
    threads.push_back(std::move(*thread));
  }
  return std::make_shared<IoThreads>(std::move(threads));
}

ThreadSeat IoThreads::take_seat() const {
  std::size_t least = 0;
  for (std::size_t i = 1; i < threads_.size(); ++i)
    if ((*sessions_)[i].load(std::memory_order_relaxed) <
        (*sessions_)[least].load(std::memory_order_relaxed))
      least = i;
  return {sessions_, least};
}

}  // namespace remora::transport::tcp
