// Resolver: the connector for event loops, step by step.
#include <poll.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;

class ResolverTest : public FakeTest {
 protected:
  [[nodiscard]] Result<verbs::Resolver> start(milliseconds patience = milliseconds{10'000},
                                              const verbs::ConnectorOptions& options = {}) const {
    return verbs::Resolver::start(verbs::Address::parse("10.0.0.9", 7471).value(),
                                  verbs::deadline_in(patience), options, fake_.provider());
  }
  static bool readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
};

TEST_F(ResolverTest, GivesTheConnectorAfterAddressAndRoute) {
  auto resolver = start();
  ASSERT_OK(resolver);
  EXPECT_TRUE(readable(resolver->event_fd()));
  auto step = resolver->advance();
  ASSERT_OK(step);
  EXPECT_FALSE(step->has_value()) << "the route is still to come";
  EXPECT_TRUE(readable(resolver->event_fd()));
  step = resolver->advance();
  ASSERT_OK(step);
  ASSERT_TRUE(step->has_value());
  EXPECT_EQ((*step)->device().name(), "fake0");
  EXPECT_EQ((*step)->peer_address().to_string(), "10.0.0.9:7471");
}

TEST_F(ResolverTest, NothingYetIsNothing) {
  fake_.resolve = false;
  auto resolver = start().value();
  EXPECT_FALSE(readable(resolver.event_fd()));
  for (int i = 0; i < 3; ++i) {
    const auto step = resolver.advance();
    ASSERT_OK(step);
    EXPECT_FALSE(step->has_value());
  }
  fake_.push(resolver.raw(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_OK(resolver.advance());
  EXPECT_TRUE(resolver.advance().value().has_value());
}

TEST_F(ResolverTest, SpentIsClosed) {
  auto resolver = start().value();
  ASSERT_OK(resolver.advance());
  const auto connector = resolver.advance();
  ASSERT_OK(connector);
  EXPECT_CODE(resolver.advance(), kClosed);
  EXPECT_EQ(resolver.event_fd(), -1);
  EXPECT_EQ(resolver.raw(), nullptr);
}

TEST_F(ResolverTest, DeadlineIsATimeOutAndSpendsIt) {
  fake_.resolve = false;
  auto resolver = start(milliseconds{-1}).value();
  const auto late = resolver.advance();
  EXPECT_CODE(late, kTimedOut);
  EXPECT_EQ(late.error().operation(), "rdma_resolve_addr");
  EXPECT_EQ(late.error().subject(), "10.0.0.9:7471");
  EXPECT_EQ(fake_.live(), "") << "given up at once";
  EXPECT_CODE(resolver.advance(), kClosed);
}

TEST_F(ResolverTest, EventThatIsThereCountsAfterTheDeadlineToo) {
  auto resolver = start(milliseconds{-1}).value();
  ASSERT_OK(resolver.advance());
  EXPECT_TRUE(resolver.advance().value().has_value());
}

TEST_F(ResolverTest, RefusedRouteIsUnreachable) {
  auto resolver = start().value();
  fake_.fail("resolve_route", 1, EHOSTUNREACH);
  const auto refused = resolver.advance();
  EXPECT_CODE(refused, kUnreachable);
  EXPECT_EQ(refused.error().operation(), "rdma_resolve_route");
  EXPECT_EQ(refused.error().system_errno(), EHOSTUNREACH);
  EXPECT_CODE(resolver.advance(), kClosed);
}

TEST_F(ResolverTest, FailedAddressAndRouteKeepTheKernelsReason) {
  fake_.resolve = false;
  auto address = start().value();
  fake_.push(address.raw(), RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
  const auto nowhere = address.advance();
  EXPECT_CODE(nowhere, kUnreachable);
  EXPECT_EQ(nowhere.error().system_errno(), ENODEV);
  auto route = start().value();
  fake_.push(route.raw(), RDMA_CM_EVENT_ADDR_RESOLVED);
  fake_.push(route.raw(), RDMA_CM_EVENT_ROUTE_ERROR, -EHOSTUNREACH);
  ASSERT_OK(route.advance());
  const auto none = route.advance();
  EXPECT_CODE(none, kUnreachable);
  EXPECT_EQ(none.error().system_errno(), EHOSTUNREACH);
  EXPECT_EQ(none.error().operation(), "rdma_resolve_route");
}

TEST_F(ResolverTest, MovesInTheMiddle) {
  auto first = start().value();
  ASSERT_OK(first.advance());
  auto second = std::move(first);
  EXPECT_CODE(first.advance(), kClosed);  // NOLINT(bugprone-use-after-move)
  auto third = start().value();
  third = std::move(second);
  EXPECT_EQ(fake_.uses("destroy_id"), 1) << "the one assigned to gives up";
  EXPECT_TRUE(third.advance().value().has_value());
}

TEST_F(ResolverTest, DroppedInTheMiddleGivesUp) {
  {
    auto resolver = start().value();
    ASSERT_OK(resolver.advance());
  }
  EXPECT_EQ(fake_.live(), "");
}

TEST_F(ResolverTest, StartFailuresAreTold) {
  fake_.fail("resolve_addr", 1, ENETUNREACH);
  EXPECT_CODE(start(), kUnreachable);
  fake_.fail("create_id", 1, ENOMEM);
  EXPECT_CODE(start(), kOutOfMemory);
  EXPECT_CODE(start(milliseconds{10'000}, {.source = {}, .ack_timeout = 32}), kInvalidArgument);
}

}  // namespace
}  // namespace remora::test
