#include "cli/checksum_thread.h"

#include <exception>

#include <remora/start_thread.h>

namespace remora::apps {

Result<std::unique_ptr<ChecksumThread>> ChecksumThread::start(Checksum sum, std::uint64_t first,
                                                              Checkpoints checkpoints) {
  std::unique_ptr<ChecksumThread> made{
      new ChecksumThread{std::move(sum), first, std::move(checkpoints)}};
  auto thread = detail::start_thread("remora-checksum", [raw = made.get()] { raw->run(); });
  if (!thread) return thread.error();
  made->thread_ = std::move(*thread);
  return made;
}

ChecksumThread::~ChecksumThread() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void ChecksumThread::add(std::uint64_t at, std::span<const std::byte> bytes) {
  hand_over(at, {bytes.data(), bytes.size()});
}

void ChecksumThread::add_zeroes(std::uint64_t at, std::uint64_t length_bytes) {
  hand_over(at, {nullptr, length_bytes});
}

void ChecksumThread::hand_over(std::uint64_t at, const Part& part) {
  if (part.length == 0) return;
  const detail::MutexLock lock{mutex_};
  parts_.emplace(at, part);
  if (next_is_there()) handed_over_.notify_one();
}

bool ChecksumThread::await(std::uint64_t end) {
  detail::MutexLock lock{mutex_};
  while (!stopped_ && position_ < end) summed_.wait(lock);
  return position_ >= end;
}

void ChecksumThread::stop() noexcept {
  const detail::MutexLock lock{mutex_};
  stopped_ = true;
  handed_over_.notify_all();
  summed_.notify_all();
}

void ChecksumThread::halt() noexcept {
  stop();
  detail::MutexLock lock{mutex_};
  while (busy_) summed_.wait(lock);
}

void ChecksumThread::run() noexcept {
  try {
    work();
  } catch (const std::exception&) {  // OpenSSL, or no memory: the transfer ends without a sum
    const detail::MutexLock lock{mutex_};
    busy_ = false;
    stopped_ = true;
    summed_.notify_all();
  }
}

void ChecksumThread::work() {
  detail::MutexLock lock{mutex_};
  while (true) {
    while (!stopped_ && !next_is_there()) handed_over_.wait(lock);
    if (stopped_) return;
    const Part part = parts_.begin()->second;
    const std::uint64_t end = position_ + part.length;
    parts_.erase(parts_.begin());
    busy_ = true;
    lock.unlock();
    if (part.bytes == nullptr)
      sum_.update_zeroes(part.length);
    else
      sum_.update({part.bytes, part.length});
    if (checkpoints_.reached && end % checkpoints_.step_bytes == 0)
      checkpoints_.reached(end, sum_.digest());
    lock.lock();
    busy_ = false;
    position_ = end;
    summed_.notify_all();
  }
}

}  // namespace remora::apps
