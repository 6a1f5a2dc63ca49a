/// The order of requests about one region: opens run beside each other, all other requests wait for
/// them. A revocation ends when no memory of the region is registered again.

#include "server/revocation_coordinator.h"

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include <remora/config/server_config.h>

#include "server/memory/pool.h"
#include "server/memory/region_entry.h"

namespace remora::detail {
namespace {

using Turn = RevocationCoordinator::Turn;

class RevocationCoordinatorTest : public testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<RegionEntry> make(const std::string& name) const {
    RegionInfo info;
    info.name = name;
    return std::make_shared<RegionEntry>(
        std::move(info),
        pool_->allocate(4096, false, Clock::now() + std::chrono::seconds{10}).value(),
        std::make_shared<OwnedBytes>());
  }
  [[nodiscard]] RevocationCoordinator::Job note(const char* what) {
    return [this, what] { ran_ += what; };
  }
  /// Begins an open that goes on.
  void begin_open(const std::shared_ptr<RegionEntry>& region, const char* what) {
    requests_.run_in_turn(
        region,
        [this, region, what] {
          ran_ += what;
          requests_.begin_open(*region);
        },
        Turn::kOpen);
  }
  void fence(const std::shared_ptr<RegionEntry>& region) {
    requests_.run_in_turn(region, [this, region] {
      ran_ += "fence ";
      requests_.revoke_all(region, Reason::kFenced, RevocationCoordinator::Mapped::kLeave,
                           [this](std::size_t /*left*/) { ran_ += "fenced "; });
    });
  }

  std::shared_ptr<Pool> pool_ = Pool::create({.size_bytes = 1U << 20U,
                                              .piece_bytes = 1U << 20U,
                                              .huge_pages = config::HugePages::kNever,
                                              .populate = false})
                                    .value();
  std::string ran_;
  RevocationCoordinator requests_{std::chrono::seconds{1}};
};

TEST_F(RevocationCoordinatorTest, RequestRunsAtOnceWhereNothingIsUnderWay) {
  const auto region = make("r");
  requests_.run_in_turn(region, note("a "));
  requests_.run_in_turn(region, note("b "), Turn::kOpen);
  fence(region);
  EXPECT_EQ(ran_, "a b fence fenced ");
}

TEST_F(RevocationCoordinatorTest, OpensOfARegionRunBesideEachOther) {
  const auto region = make("r");
  begin_open(region, "first ");
  begin_open(region, "second ");
  EXPECT_EQ(ran_, "first second ");
  requests_.end_open(region);
  requests_.end_open(region);
}

TEST_F(RevocationCoordinatorTest, FenceWaitsForOpensThatCameBeforeItAndNoneOvertakesIt) {
  const auto region = make("r");
  const auto other = make("other");
  begin_open(region, "first ");
  begin_open(region, "second ");
  fence(region);
  begin_open(region, "third ");
  requests_.run_in_turn(region, note("resize "));
  requests_.run_in_turn(other, note("other "));
  EXPECT_EQ(ran_, "first second other ") << "a request never waits for another region's";
  requests_.end_open(region);
  EXPECT_EQ(ran_, "first second other ");
  requests_.end_open(region);
  EXPECT_EQ(ran_, "first second other fence fenced third ") << "the resize waits for the open";
  requests_.end_open(region);
  EXPECT_EQ(ran_, "first second other fence fenced third resize ");
}

TEST_F(RevocationCoordinatorTest, FenceBeginsDuringARenewalAndEndsAfterIt) {
  const auto region = make("r");
  requests_.begin_renewal(*region);
  requests_.begin_renewal(*region);
  fence(region);
  begin_open(region, "open ");
  EXPECT_EQ(ran_, "fence ");
  requests_.begin_renewal(*region);  // of a grant that is being revoked
  requests_.end_renewal(region);
  requests_.end_renewal(region);
  EXPECT_EQ(ran_, "fence ");
  requests_.end_renewal(region);
  EXPECT_EQ(ran_, "fence fenced open ");
  requests_.end_open(region);
}

TEST_F(RevocationCoordinatorTest, RenewalHoldsUpNoOtherRequest) {
  const auto region = make("r");
  requests_.begin_renewal(*region);
  requests_.run_in_turn(region, note("alone "));
  begin_open(region, "open ");
  EXPECT_EQ(ran_, "alone open ");
  requests_.end_open(region);
  requests_.end_renewal(region);
}

/// The time for clients to stop is over before the renewal is.
TEST_F(RevocationCoordinatorTest, FenceWhoseTimeIsOverWaitsForRenewals) {
  RevocationCoordinator impatient{std::chrono::nanoseconds{0}};
  const auto region = make("r");
  impatient.begin_renewal(*region);
  impatient.run_in_turn(region, [&] {
    impatient.revoke_all(region, Reason::kFenced, RevocationCoordinator::Mapped::kLeave,
                         [this](std::size_t left) { ran_ += left == 0 ? "fenced " : "left "; });
  });
  impatient.tick();
  impatient.tick();
  EXPECT_EQ(ran_, "");
  impatient.end_renewal(region);
  EXPECT_EQ(ran_, "fenced ");
}

/// As the open that follows a fence.
TEST_F(RevocationCoordinatorTest, OpenThatEndsWithinItsTurnLetsTheNextRequestRun) {
  const auto region = make("r");
  begin_open(region, "first ");
  requests_.run_in_turn(region, [&] {
    ran_ += "second ";
    requests_.begin_open(*region);
    requests_.end_open(region);
  });
  requests_.run_in_turn(region, note("third "));
  requests_.end_open(region);
  EXPECT_EQ(ran_, "first second third ");
}

}  // namespace
}  // namespace remora::detail
