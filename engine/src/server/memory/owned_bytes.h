#pragma once

/// Bytes of the pool that each owner's regions use.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <remora/mutex.h>

namespace remora::detail {

/// Also counts regions that are removed but still open. Thread-safe.
class OwnedBytes {
 public:
  void add(std::string_view owner, std::int64_t change_bytes);
  [[nodiscard]] std::uint64_t of(std::string_view owner) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> bytes_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
