/// The series of mirrors, and their lines of the log.

#include "mirror_metrics.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <remora/engine/log.h>
#include <remora/metrics/registry.h>

#include "mirror_census.h"
#include "mirror_rig.h"
#include "mirror_writer.h"

namespace remora::volume::test {
namespace {

using detail::MirrorCensus;
using detail::MirrorGroup;
using detail::MirrorMetrics;
using detail::MirrorWriter;

class MirrorMetricsTest : public MirrorRig {
 protected:
  void SetUp() override {
    MirrorRig::SetUp();
    options_.metrics = MirrorMetrics::of(*registry_);
  }
  [[nodiscard]] double value(const std::string& name, const metrics::Labels& labels = {}) const {
    return registry_->value("remora_client_mirror_" + name, labels).value();
  }
  [[nodiscard]] double groups(const char* state) const {
    return value("groups", {{"state", state}});
  }
  [[nodiscard]] double removed(const char* cause) const {
    return value("members_removed_total", {{"cause", cause}});
  }
  [[nodiscard]] double left(const char* kind) const {
    return value("resync_bytes", {{"kind", kind}});
  }
  /// Claims the volume and adopts its group, which the census has.
  void adopt_with_census() {
    claim_ = claim();
    census_ = std::make_unique<MirrorCensus>(options_.metrics, claim_);
    census_->expect(1);
    EXPECT_EQ(groups("unadopted"), 1);
    auto group = detail::adopt_group(claim_, stored(), store_->value(group_key()), options_,
                                     opener_, soon());
    ASSERT_OK(group);
    ASSERT_OK((*group)->repair(soon()));
    group_ = std::move(*group);
    census_->add(0, group_.get(), {});
  }

  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::shared_ptr<detail::VolumeClaim> claim_;
  std::unique_ptr<MirrorGroup> group_;
  std::unique_ptr<MirrorCensus> census_;  ///< ended before the group
};

TEST_F(MirrorMetricsTest, TheirNumberIsThatOfTheDocument) {
  EXPECT_EQ(registry_->series_count(), 38U) << "metrics/docs/adding-a-metric.md says how many";
  EXPECT_EQ(MirrorMetrics::of(*registry_), options_.metrics) << "one object for a registry";
  EXPECT_EQ(registry_->series_count(), 38U);
}

TEST_F(MirrorMetricsTest, WithoutARegistryNothingIsCounted) {
  const auto none = MirrorMetrics::none();
  none->claimed();
  none->member_removed(Error{Code::kConnectionLost, "write"});
  none->confirmation(true, 1ms);
  EXPECT_EQ(value("claims_total", {{"outcome", "ok"}}), 0);
}

TEST_F(MirrorMetricsTest, AGroupIsCountedByItsState) {
  adopt_with_census();
  EXPECT_EQ(groups("in_sync"), 1);
  EXPECT_EQ(groups("unadopted"), 0);
  EXPECT_EQ(value("writers"), 1);
  EXPECT_EQ(value("writer_epoch"), static_cast<double>(claim_->writer_epoch()));
  EXPECT_EQ(value("fences_total", {{"outcome", "ok"}}), 3);
  const double configurations = value("configurations_total");
  regions_[1]->die();
  ASSERT_OK(write_filled(*group_, 0, 1, soon()));
  EXPECT_EQ(groups("degraded"), 1);
  EXPECT_EQ(groups("in_sync"), 0);
  EXPECT_EQ(removed("unreachable"), 1);
  EXPECT_EQ(value("configurations_total"), configurations + 1);
  claim_->lose();
  EXPECT_EQ(groups("degraded"), 0) << "another writer's";
  EXPECT_EQ(value("writers"), 0);
  EXPECT_EQ(value("writer_epoch"), 0);
}

TEST_F(MirrorMetricsTest, AMemberThatAClaimRemovesIsCounted) {
  regions_[1]->die();
  adopt_with_census();
  EXPECT_EQ(removed("unreachable"), 1);
  EXPECT_EQ(groups("degraded"), 1);
}

TEST_F(MirrorMetricsTest, ADegradedGroupAddsItsSeconds) {
  adopt_with_census();
  census_->tick(clock_->now());
  clock_->advance(5s);
  census_->tick(clock_->now());
  EXPECT_EQ(value("degraded_seconds_total"), 0);
  regions_[1]->die();
  ASSERT_OK(write_filled(*group_, 0, 1, soon()));
  clock_->advance(3s);
  census_->tick(clock_->now());
  census_->tick(clock_->now());
  EXPECT_DOUBLE_EQ(value("degraded_seconds_total"), 3);
}

TEST_F(MirrorMetricsTest, GroupsThatAreNotAdoptedAreLostOrNot) {
  claim_ = claim();
  MirrorCensus census{options_.metrics, claim_};
  census.expect(3);
  EXPECT_EQ(groups("unadopted"), 3);
  census.add(0, nullptr, Error{Code::kStaleRegion, "adoption of a group"});
  census.add(1, nullptr, Error{Code::kUnreachable, "adoption of a group"});
  EXPECT_EQ(groups("lost"), 1);
  EXPECT_EQ(groups("unadopted"), 2);
}

TEST_F(MirrorMetricsTest, AMemberThatIsBuiltIsCopied) {
  adopt_with_census();
  ASSERT_OK(group_->remove_member(member_of(2).region, soon()));
  EXPECT_EQ(removed("request"), 1);
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  EXPECT_EQ(left("members"), static_cast<double>(kGroupBytes));
  ASSERT_OK(group_->copy_zone(0, soon()));
  EXPECT_EQ(left("members"), static_cast<double>(kGroupBytes - 1_MiB));
  EXPECT_EQ(value("copied_bytes_total", {{"kind", "members"}}), static_cast<double>(1_MiB));
  EXPECT_EQ(groups("degraded"), 1);
  ASSERT_OK(group_->copy_zone(1, soon()));
  ASSERT_OK(group_->copy_zone(2, soon()));
  ASSERT_OK(group_->make_in_sync(soon()));
  EXPECT_EQ(left("members"), 0);
  EXPECT_EQ(groups("in_sync"), 1);
  EXPECT_EQ(left("zones"), 0);
}

TEST_F(MirrorMetricsTest, AConfirmationIsTimedOrHasFailed) {
  adopt_with_census();
  clock_->advance(options_.times.confirmed_for);
  ASSERT_OK(group_->control().confirm(soon()));
  const auto times =
      registry_->distribution("remora_client_mirror_confirmation_latency_seconds").value();
  EXPECT_EQ(times.count(), 1U);
  clock_->advance(options_.times.confirmed_for);
  store_->set_down(true);
  EXPECT_FALSE(group_->control().confirm(soon()));
  EXPECT_EQ(value("confirmation_failures_total"), 1);
}

TEST_F(MirrorMetricsTest, AWriteInDoubtIsCountedAndItsZoneIsToCopy) {
  adopt_with_census();
  ASSERT_OK(write_filled(*group_, 0, 1, soon()));
  store_->set_down(true);  // so that the member cannot be removed
  regions_[1]->fail_writes({WriteFault::kApplied});
  regions_[1]->set_settles(false);
  EXPECT_CODE(write_in_vain(*group_, 4_KiB, 2), kIndeterminate);
  EXPECT_EQ(value("writes_indeterminate_total"), 1);
  EXPECT_EQ(left("zones"), static_cast<double>(1_MiB));
  store_->set_down(false);
  group_->maintain(false);
  group_->maintain(false);
  EXPECT_EQ(left("zones"), 0);
  EXPECT_GE(value("copied_bytes_total", {{"kind", "zones"}}), static_cast<double>(1_MiB));
  EXPECT_EQ(removed("no_answer"), 1);
}

TEST_F(MirrorMetricsTest, ClaimsAreCountedByTheirOutcomeAndTheirEnd) {
  const std::shared_ptr<detail::MemberOpener> opener{std::shared_ptr<void>{}, &opener_};
  const auto claims = [&](const char* outcome) {
    return value("claims_total", {{"outcome", outcome}});
  };
  const auto ended = [&](const char* reason) {
    return value("claims_ended_total", {{"reason", reason}});
  };
  const auto first = MirrorWriter::claim(opener, *cluster_, "v", options_).value();
  EXPECT_EQ(claims("ok"), 1);
  EXPECT_EQ(value("writers"), 1);
  options_.steal = false;
  EXPECT_CODE(MirrorWriter::claim(opener, *cluster_, "v", options_), kBusy);
  EXPECT_EQ(claims("held"), 1);
  ASSERT_OK(first->release());
  EXPECT_EQ(ended("released"), 1);
  EXPECT_EQ(value("writers"), 0);
  for (const auto& region : regions_) region->die();
  EXPECT_FALSE(MirrorWriter::claim(opener, *cluster_, "v", options_));
  EXPECT_EQ(claims("failed"), 1);
  EXPECT_EQ(value("fences_total", {{"outcome", "failed"}}), 3);
  EXPECT_EQ(ended("lost"), 0);
}

TEST_F(MirrorMetricsTest, TheLogNamesTheMemberThatWasRemoved) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_sink([&](const LogLine& line) {
    if (line.event != "mirror.member_removed") return;
    const std::lock_guard lock{mutex};
    for (const LogField& field : line.fields)
      lines.push_back(std::string{field.name} + "=" + std::string{field.value});
  });
  adopt_with_census();
  regions_[1]->die();
  ASSERT_OK(write_filled(*group_, 0, 1, soon()));
  EXPECT_TRUE(flush_log_sink(30s));
  set_log_sink({});
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "volume=v");
  EXPECT_EQ(lines[1], "group=0");
  EXPECT_EQ(lines[2], "server=s1");
}

}  // namespace
}  // namespace remora::volume::test
