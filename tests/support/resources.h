#pragma once

/// What a process holds of the system, counted, so that a test can show that it gave all of it
/// back.

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>

namespace remora::test {

/// Counts by name: open descriptors by kind, threads, mapped memfds, pinned KiB, files of ours in
/// /dev/shm and, where there is an RDMA device, its objects (`rdma resource`: of all processes).
class Resources {
 public:
  static Resources now();
  /// The counts, once they have not changed for a moment: what was just closed may still be going.
  static Resources settled();

  [[nodiscard]] const std::map<std::string, std::int64_t>& counts() const noexcept {
    return counts_;
  }
  /// One line for each name whose count differs; of device objects, which all processes share, for
  /// each that has grown. Empty: none.
  [[nodiscard]] std::string difference(const Resources& later) const;

 private:
  std::map<std::string, std::int64_t> counts_;
};

/// Waits until the counts are `baseline` again: kernels free some objects a little later.
::testing::AssertionResult back_at(const Resources& baseline,
                                   std::chrono::milliseconds timeout = std::chrono::seconds{60});

}  // namespace remora::test
