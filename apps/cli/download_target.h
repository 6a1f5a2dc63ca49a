#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/result.h>

namespace remora::apps {

/// Where a download puts its bytes.
class DownloadTarget {
 public:
  DownloadTarget() = default;
  virtual ~DownloadTarget() = default;
  DownloadTarget(const DownloadTarget&) = delete;
  DownloadTarget& operator=(const DownloadTarget&) = delete;

  /// In order of `at` where there is one stream; else in any order, several streams at once. May
  /// block.
  virtual Status write(std::uint64_t at, std::span<const std::byte> bytes) = 0;
};

}  // namespace remora::apps
