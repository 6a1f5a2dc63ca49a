// Zones that are copied by several threads: each once, and none after a failure.

#include "zone_copier.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include <remora/mutex.h>

namespace remora::volume::detail {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only

constexpr std::uint32_t kZones = 40;

/// A mirror whose zones are copied by `copy`.
class CopiedMirror final : public ClaimedVolume {
 public:
  explicit CopiedMirror(std::function<Status(std::uint32_t)> copy) : copy_{std::move(copy)} {}

  [[nodiscard]] const VolumeRecord& volume() const noexcept override { return record_; }
  [[nodiscard]] std::uint32_t group_count() const noexcept override { return 1; }
  [[nodiscard]] bool claimed() const noexcept override { return true; }
  Status confirm() override { return {}; }
  [[nodiscard]] bool is_ours(const VolumeLayout& /*layout*/) const override { return true; }
  [[nodiscard]] bool group_open(std::uint32_t /*group*/) const override { return true; }
  [[nodiscard]] Status adoption(std::uint32_t /*group*/) const override { return {}; }
  [[nodiscard]] GroupRecord group(std::uint32_t /*group*/) const override { return {}; }
  [[nodiscard]] std::uint32_t zone_count() const noexcept override { return kZones; }
  Status add_syncing(std::uint32_t /*group*/, const Member& /*member*/, Time /*until*/) override {
    return {};
  }
  Status copy_zone(std::uint32_t /*group*/, std::uint32_t zone, Time /*until*/) override {
    return copy_(zone);
  }
  Status make_in_sync(std::uint32_t /*group*/, Time /*until*/) override { return {}; }
  Status remove_member(std::uint32_t /*group*/, const std::string& /*region*/,
                       Time /*until*/) override {
    return {};
  }
  void tell(const VolumeEvent& /*event*/) override {}
  Status settle_promotion(std::uint32_t /*group*/, Time /*until*/) override { return {}; }

 private:
  const VolumeRecord record_{};
  const std::function<Status(std::uint32_t)> copy_;
};

TEST(ZoneCopier, EachZoneIsCopiedOnce) {
  for (const std::uint32_t threads : {1U, 4U, 100U}) {
    remora::detail::Mutex mutex;
    std::multiset<std::uint32_t> copied;
    CopiedMirror mirror{[&](std::uint32_t zone) -> Status {
      const remora::detail::MutexLock lock{mutex};
      copied.insert(zone);
      return {};
    }};
    std::vector<std::uint32_t> told;
    CopyPace pace{0, {}};
    ZoneCopier copier{mirror, 0, pace, 10s, [&](std::uint32_t done) { told.push_back(done); }};
    EXPECT_TRUE(copier.run(threads).ok());
    ASSERT_EQ(copied.size(), kZones);
    ASSERT_EQ(told.size(), kZones);
    for (std::uint32_t zone = 0; zone < kZones; ++zone) {
      EXPECT_EQ(copied.count(zone), 1U);
      EXPECT_EQ(told[zone], zone + 1);
    }
  }
}

/// The bandwidth allows the second zone some days later. So the copy ends only if the first one is
/// told while another thread waits for the second.
TEST(ZoneCopier, WhatIsCopiedIsToldWhileOthersWaitForTheBandwidth) {
  CopiedMirror mirror{[](std::uint32_t /*zone*/) -> Status { return {}; }};
  std::atomic<std::uint32_t> told{0};
  CopyPace pace{1, [&] { return told.load() != 0; }};
  ZoneCopier copier{mirror, 0, pace, 10s, [&](std::uint32_t done) { told = done; }};
  EXPECT_EQ(copier.run(2).error().code(), Code::kCancelled);
  EXPECT_EQ(told.load(), 1U);
}

TEST(ZoneCopier, FailureEndsTheCopy) {
  std::atomic<std::uint32_t> begun{0};
  CopiedMirror mirror{[&](std::uint32_t zone) -> Status {
    ++begun;
    if (zone == 5) return Error{Code::kBusy, "member that is built"};
    return {};
  }};
  CopyPace pace{0, {}};
  ZoneCopier copier{mirror, 0, pace, 10s, {}};
  const Status done = copier.run(1);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), Code::kBusy);
  EXPECT_EQ(begun.load(), 6U);
}

TEST(ZoneCopier, FailureOfOneThreadEndsAll) {
  CopiedMirror mirror{[](std::uint32_t /*zone*/) -> Status {
    return Error{Code::kTimedOut, "copy of a zone"};
  }};
  CopyPace pace{0, {}};
  ZoneCopier copier{mirror, 0, pace, 10s, {}};
  EXPECT_EQ(copier.run(4).error().code(), Code::kTimedOut);
}

TEST(ZoneCopier, FailureOfOneThreadEndsTheWaitsOfTheOthers) {
  CopiedMirror mirror{[](std::uint32_t /*zone*/) -> Status {
    return Error{Code::kTimedOut, "copy of a zone"};
  }};
  CopyPace pace{1, {}};  // the second copy may begin days later
  ZoneCopier copier{mirror, 0, pace, 10s, {}};
  EXPECT_EQ(copier.run(4).error().code(), Code::kTimedOut);
}

TEST(ZoneCopier, StopIsACancellation) {
  std::atomic<std::uint32_t> begun{0};
  CopiedMirror mirror{[&](std::uint32_t /*zone*/) -> Status {
    ++begun;
    return {};
  }};
  CopyPace pace{0, [&] { return begun.load() >= 3; }};
  ZoneCopier copier{mirror, 0, pace, 10s, {}};
  EXPECT_EQ(copier.run(1).error().code(), Code::kCancelled);
  EXPECT_EQ(begun.load(), 3U);
}

}  // namespace
}  // namespace remora::volume::detail
