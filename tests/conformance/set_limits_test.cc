/// Server::set_limits(): another limit counts for the next session, region and request, and ends
/// nothing that there is.

#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

class SetLimitsTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.limits.session_regions_max = 4;
  }
  /// The limits with which the server was started.
  [[nodiscard]] config::Limits started_with() const {
    config::ServerConfig config = server_config(transport(), server_options());
    configure(config);
    return config.limits;
  }
};

TEST_P(SetLimitsTest, LowerOneCountsForTheNextOpenAndLeavesWhatIsOpen) {
  const Engine client = open_engine();
  const std::string name = create({.size_bytes = 4096}).name;
  std::vector<Region> regions;
  for (int i = 0; i < 3; ++i)
    regions.push_back(client.open_region(uri(name), Rights::kAll).value());
  config::Limits limits = started_with();
  limits.session_regions_max = 2;
  ASSERT_TRUE(ok(server().set_limits(limits)));
  const auto refused = client.open_region(uri(name), Rights::kAll);
  ASSERT_TRUE(fails_with(refused, Code::kLimitExceeded));
  EXPECT_EQ(refused.error().allowed(), 2U) << refused.error();
  for (const Region& region : regions) EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  limits.session_regions_max = 5;
  ASSERT_TRUE(ok(server().set_limits(limits)));
  for (int i = 0; i < 2; ++i)
    regions.push_back(client.open_region(uri(name), Rights::kAll).value());
  EXPECT_TRUE(fails_with(client.open_region(uri(name), Rights::kAll), Code::kLimitExceeded));
}

TEST_P(SetLimitsTest, RegionsThatAreThereStay) {
  const std::string first = create({.size_bytes = 4096}).name;
  const std::string second = create({.size_bytes = 4096}).name;
  config::Limits limits = started_with();
  limits.regions_max = 1;
  ASSERT_TRUE(ok(server().set_limits(limits)));
  const auto refused = session().create_region(spec(unique_name(), {.size_bytes = 4096}));
  ASSERT_TRUE(fails_with(refused, Code::kLimitExceeded));
  EXPECT_EQ(refused.error().subject(), "limits.regions_max") << refused.error();
  EXPECT_EQ(server().regions().size(), 2U);
  EXPECT_TRUE(ok(open(second).write_zeroes(ByteOffset{0}, 64)));
  ASSERT_TRUE(ok(server().set_limits(started_with())));
  EXPECT_FALSE(create({.size_bytes = 4096}).name.empty());
}

TEST_P(SetLimitsTest, WhatARunningServerKeepsIsRefusedAndNothingIsTaken) {
  const Engine client = open_engine();
  const std::string name = create({.size_bytes = 4096}).name;
  const Region region = client.open_region(uri(name), Rights::kAll).value();
  config::Limits limits = started_with();
  limits.session_regions_max = 1;
  limits.session_lease += std::chrono::seconds{1};
  const Status refused = server().set_limits(limits);
  ASSERT_TRUE(fails_with(refused, Code::kUnsupported));
  EXPECT_EQ(refused.error().subject(), "limits.session_lease") << refused.error();
  EXPECT_TRUE(ok(client.open_region(uri(name), Rights::kAll)));
  limits = started_with();
  limits.registrations_max = 7;
  EXPECT_EQ(server().set_limits(limits).error().subject(), "limits.registrations_max");
}

TEST_P(SetLimitsTest, ValueOutOfItsRangeIsRefused) {
  config::Limits limits = started_with();
  limits.requests_per_second = 0;
  const Status refused = server().set_limits(limits);
  ASSERT_TRUE(fails_with(refused, Code::kInvalidArgument));
  EXPECT_NE(refused.error().subject().find("limits.requests_per_second"), std::string_view::npos)
      << refused.error();
  EXPECT_TRUE(ok(session().usage()));
}

TEST_P(SetLimitsTest, RateCountsForSessionsThatAreThere) {
  // More than a bucket of the old rate has left, and of the new one.
  config::Limits limits = started_with();
  limits.requests_per_second = 10;
  ASSERT_TRUE(ok(server().set_limits(limits)));
  const auto began = std::chrono::steady_clock::now();
  constexpr int kRequests = 35;
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(ok(session().usage()));
  // 20 at once, the others at 10 a second.
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s);
  ASSERT_TRUE(ok(server().set_limits(started_with())));
}

REMORA_CONFORMANCE(SetLimitsTest);

}  // namespace
}  // namespace remora::test
