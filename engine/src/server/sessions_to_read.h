#pragma once

/// Sessions that have room for notices again, whose endpoints the control thread is to read.

#include <cstdint>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe, but for open().
class SessionsToRead {
 public:
  /// Before the other functions. Errors: kSystem.
  Status open();
  /// Readable when take() has something to return.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  void add(std::uint64_t session_id) noexcept REMORA_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::uint64_t> take() noexcept REMORA_EXCLUDES(mutex_);
  /// add() has no effect any more.
  void close() noexcept REMORA_EXCLUDES(mutex_);

 private:
  UniqueFd event_;
  Mutex mutex_;
  std::vector<std::uint64_t> ids_ REMORA_GUARDED_BY(mutex_);
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::detail
