#pragma once

/// Sessions that have room for notices again, whose endpoints the control thread must read.

#include <cstdint>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe, except open().
class SessionsToRead {
 public:
  /// Called before the other functions. Errors: kSystem.
  Status open();
  /// Readable when take() has a session to return.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  void add(std::uint64_t session_id) noexcept REMORA_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::uint64_t> take() noexcept REMORA_EXCLUDES(mutex_);
  /// From now on add() has no effect.
  void close() noexcept REMORA_EXCLUDES(mutex_);

 private:
  UniqueFd event_;
  Mutex mutex_;
  std::vector<std::uint64_t> ids_ REMORA_GUARDED_BY(mutex_);
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::detail
