// Which members of a mirror move, and where to.

#include "move_plan.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/types.h>

namespace remora::volume::detail {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ServerRecord pool(std::string name, std::uint64_t used_bytes, std::string domain = {}) {
  ServerRecord record;
  record.name = std::move(name);
  record.pool_bytes = 100_MiB;
  record.pool_free_bytes = 100_MiB - used_bytes;
  record.failure_domain = std::move(domain);
  return record;
}

GroupRecord group(std::uint64_t index, const std::vector<std::string>& servers) {
  GroupRecord record;
  record.index = index;
  for (const std::string& server : servers)
    record.members.push_back(
        {.server = server, .region = "r" + std::to_string(index) + "-" + server});
  return record;
}

TEST(MovePlan, BalancedServersStayAsTheyAre) {
  const std::vector groups{group(0, {"a", "b"}), group(1, {"b", "c"}), group(2, {"c", "a"})};
  const std::vector servers{pool("a", 20_MiB), pool("b", 20_MiB), pool("c", 20_MiB)};
  EXPECT_THAT(plan_moves({.groups = groups, .servers = servers, .region_bytes = 10_MiB}),
              IsEmpty());
}

TEST(MovePlan, BackupsMoveToAnEmptyServerFirst) {
  const std::vector groups{group(0, {"a", "b"}), group(1, {"b", "a"})};
  const std::vector servers{pool("a", 20_MiB), pool("b", 20_MiB), pool("c", 0)};
  EXPECT_THAT(plan_moves({.groups = groups, .servers = servers, .region_bytes = 10_MiB}),
              ElementsAre(PlannedMove{1, "r1-a", "c"}));
}

TEST(MovePlan, TargetIsNeverFullerAfterwards) {
  const std::vector groups{group(0, {"a", "b"})};
  const std::vector servers{pool("a", 15_MiB), pool("b", 15_MiB), pool("c", 6_MiB)};
  EXPECT_THAT(plan_moves({.groups = groups, .servers = servers, .region_bytes = 10_MiB}),
              IsEmpty());
}

TEST(MovePlan, CopiesOfOneDomainAreSeparated) {
  const std::vector groups{group(0, {"a", "b"})};
  const std::vector servers{pool("a", 10_MiB, "r1"), pool("b", 10_MiB, "r1"),
                            pool("c", 90_MiB, "r2")};
  const MovePlanRequest request{.groups = groups, .servers = servers, .region_bytes = 10_MiB};
  EXPECT_THAT(plan_moves(request), ElementsAre(PlannedMove{0, "r0-b", "c"}));
  MovePlanRequest allowed = request;
  allowed.allow_same_domain = true;
  EXPECT_THAT(plan_moves(allowed), IsEmpty());
}

TEST(MovePlan, DomainsStayApart) {
  const std::vector groups{group(0, {"a", "b"})};
  const std::vector servers{pool("a", 50_MiB, "r1"), pool("b", 90_MiB, "r2"), pool("c", 0, "r1")};
  // b's member may not join a in r1; a's may go to c, in a's own domain.
  EXPECT_THAT(plan_moves({.groups = groups, .servers = servers, .region_bytes = 10_MiB}),
              ElementsAre(PlannedMove{0, "r0-a", "c"}));
}

TEST(MovePlan, DrainingServersAreNoTarget) {
  const std::vector groups{group(0, {"a", "b"})};
  const std::vector servers{pool("a", 50_MiB), pool("b", 50_MiB), pool("c", 0)};
  const std::vector<std::string> draining{"c"};
  EXPECT_THAT(
      plan_moves(
          {.groups = groups, .servers = servers, .draining = draining, .region_bytes = 10_MiB}),
      IsEmpty());
}

TEST(MovePlan, ServerWithoutTheRoomIsNoTarget) {
  const std::vector groups{group(0, {"a", "b"})};
  ServerRecord small = pool("c", 0);
  small.pool_bytes = small.pool_free_bytes = 9_MiB;
  const std::vector servers{pool("a", 90_MiB), pool("b", 90_MiB), small};
  EXPECT_THAT(plan_moves({.groups = groups, .servers = servers, .region_bytes = 10_MiB}),
              IsEmpty());
}

}  // namespace
}  // namespace remora::volume::detail
