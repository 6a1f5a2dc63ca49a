#pragma once

/// Bookkeeping for tests that break things: each operation ends exactly once, as it may, in time.

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include <remora/remora.h>

#include "client_under_test.h"
#include "support/timed.h"

namespace remora::test {

enum class Kind { kRead, kWrite, kAtomic };

/// Records operations of one queue by tag. `limit` is on their time less what this process stood
/// still; make the ledger before the first of them.
class Ledger {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Ledger(std::chrono::nanoseconds limit) : limit_{limit} {}

  /// A tag for an operation that is submitted now.
  std::uint64_t begin(Kind kind);
  /// Checks that it is the operation's only end, allowed for its kind, and not too late.
  void end(const Completion& completion);

  [[nodiscard]] std::size_t open() const noexcept { return open_; }
  /// How many ended so, by the code's text; "ok" too.
  [[nodiscard]] const std::map<std::string, std::size_t>& ends() const noexcept { return ends_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  struct Entry {
    Kind kind = Kind::kRead;
    Clock::time_point began;
    bool ended = false;
  };
  std::chrono::nanoseconds limit_;
  Timed timed_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> ends_;
  std::size_t open_ = 0;
  bool failed_ = false;
};

/// A lost session ends reads as kConnectionLost (never an effect); writes and atomics also as
/// kIndeterminate, where they may have been posted.
bool allowed_when_lost(Kind kind, Code code);

}  // namespace remora::test
