#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

#include "cli/checksum.h"

namespace remora::apps {

/// Called by the thread each time that the sum has reached a multiple of `step_bytes`, with the
/// digest of everything before it. Without `reached`: never.
struct ChecksumCheckpoints {
  std::uint64_t step_bytes = 0;
  std::function<void(std::uint64_t end, const std::string& digest)> reached{};
};

/// Sums the bytes of a transfer in its own thread, while the threads of the transfer continue. They
/// add pieces in any order; the pieces are summed in the order of their places, so every byte must
/// be added once. Thread-safe.
class ChecksumThread {
 public:
  using Checkpoints = ChecksumCheckpoints;

  /// `sum` contains the bytes before `first`. A step must not end within a piece. Errors: kSystem
  /// (no thread).
  static Result<std::unique_ptr<ChecksumThread>> start(Checksum sum, std::uint64_t first,
                                                       Checkpoints checkpoints = {});
  ~ChecksumThread();
  ChecksumThread(const ChecksumThread&) = delete;
  ChecksumThread& operator=(const ChecksumThread&) = delete;

  /// The bytes must not change until await() of their end or halt() has returned.
  void add(std::uint64_t at, std::span<const std::byte> bytes);
  void add_zeroes(std::uint64_t at, std::uint64_t length_bytes);
  /// Blocks until every byte before `end` has been summed. False: stop() was called before.
  bool await(std::uint64_t end);
  /// From now on no bytes are summed, and await() does not block.
  void stop() noexcept;
  /// As stop(), and waits until the thread no longer uses the bytes that it was summing.
  void halt() noexcept;
  /// The digest of all bytes, after await() of their end.
  [[nodiscard]] std::string digest() const { return sum_.digest(); }

 private:
  struct Part {
    const std::byte* bytes = nullptr;  ///< null: zeroes
    std::uint64_t length = 0;
  };

  ChecksumThread(Checksum sum, std::uint64_t first, Checkpoints checkpoints)
      : sum_{std::move(sum)}, checkpoints_{std::move(checkpoints)}, position_{first} {}
  void run() noexcept;
  void work();
  void hand_over(std::uint64_t at, const Part& part);
  [[nodiscard]] bool next_is_there() const REMORA_REQUIRES(mutex_) {
    return !parts_.empty() && parts_.begin()->first == position_;
  }

  Checksum sum_;  ///< used by the thread, until everything is summed
  Checkpoints checkpoints_;
  detail::Mutex mutex_;
  detail::Condition handed_over_;
  detail::Condition summed_;
  std::map<std::uint64_t, Part> parts_ REMORA_GUARDED_BY(mutex_);  ///< by their place
  std::uint64_t position_ REMORA_GUARDED_BY(mutex_);               ///< summed so far
  bool busy_ REMORA_GUARDED_BY(mutex_) = false;
  bool stopped_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace remora::apps
