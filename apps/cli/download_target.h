#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/result.h>

namespace remora::apps {

/// The destination of a download's bytes.
class DownloadTarget {
 public:
  DownloadTarget() = default;
  virtual ~DownloadTarget() = default;
  DownloadTarget(const DownloadTarget&) = delete;
  DownloadTarget& operator=(const DownloadTarget&) = delete;

  /// One stream writes in order of `at`; several streams write in any order, at the same time. May
  /// block.
  virtual Status write(std::uint64_t at, std::span<const std::byte> bytes) = 0;
};

}  // namespace remora::apps
