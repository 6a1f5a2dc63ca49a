/// Clients that ask faster than limits.requests_per_second: they are slowed down, and lose nothing.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kRequestsPerSecond = 20;
/// More than a client may have unanswered.
constexpr std::size_t kCallers = 12;

class RequestThrottleTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  [[nodiscard]] ServerOptions server_options() const override { return {.lease = 1s}; }
  void configure(config::ServerConfig& config) const override {
    config.limits.requests_per_second = kRequestsPerSecond;
    config.limits.revoke_grace = 60s;
  }
  [[nodiscard]] double counted(const char* series, const metrics::Labels& labels = {}) {
    return server().registry().sum(series, labels).value();
  }
  [[nodiscard]] double delayed() { return counted("remora_server_requests_delayed_total"); }
  [[nodiscard]] double ended(const char* reason) {
    return counted("remora_server_sessions_ended_total", {{"reason", reason}});
  }
  /// No session has ended but those whose clients have left.
  void expect_none_ended() {
    for (const char* reason : {"lost", "lapsed", "protocol", "refused", "stopped"})
      EXPECT_EQ(ended(reason), 0) << reason;
    EXPECT_EQ(counted("remora_server_protocol_violations_total"), 0);
  }
};

/// Threads that ask without a pause, until they are destroyed: each request is to be answered.
class Askers {
 public:
  explicit Askers(const Session& session) {
    for (std::size_t i = 0; i < kCallers; ++i)
      threads_.emplace_back([this, session] {
        while (!enough_) {
          const auto usage = session.usage();
          EXPECT_TRUE(ok(usage));
          if (!usage) return;
          ++answered_;
        }
      });
  }
  ~Askers() {
    enough_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Askers(const Askers&) = delete;
  Askers& operator=(const Askers&) = delete;
  [[nodiscard]] std::size_t answered() const noexcept { return answered_; }

 private:
  std::atomic<bool> enough_{false};
  std::atomic<std::size_t> answered_{0};
  std::vector<std::thread> threads_;
};

TEST_P(RequestThrottleTest, OneRequestAfterTheOtherIsSlowedDownToTheLimit) {
  const Region region = make_region();
  const auto began = Clock::now();
  std::uint32_t count = 0;
  for (; count < 2000 && delayed() < 10; ++count) {
    const auto usage = session().usage();
    ASSERT_TRUE(ok(usage)) << "request " << count;
  }
  EXPECT_GE(delayed(), 10);
  // Two seconds' worth at once, the rest at the limit.
  const std::chrono::duration<double> took = Clock::now() - began;
  EXPECT_LE(count, kRequestsPerSecond * (2 + took.count()));
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  EXPECT_TRUE(region.connected());
  expect_none_ended();
}

TEST_P(RequestThrottleTest, ManyRequestsAtOnceHoldUpNoOtherSession) {
  const Region region = make_region();
  const Engine other = open_engine();
  const Session theirs = other.connect(uri()).value();
  const Askers askers{session()};
  ASSERT_TRUE(eventually([&] { return delayed() >= 20; }));
  const Timed timed;
  for (std::uint32_t i = 0; i < kRequestsPerSecond; ++i) ASSERT_TRUE(ok(theirs.usage()));
  // Behind those that wait each would take a twentieth of a second for each of eight.
  EXPECT_TRUE(timed.took_at_most(kGrace));
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
}

TEST_P(RequestThrottleTest, LeaseIsKeptWhileRequestsWait) {
  const Region region = make_region();
  {
    const Askers askers{session()};
    // A second's worth and more beyond what is let in at once: more than twice the lease.
    ASSERT_TRUE(
        eventually([&] { return askers.answered() >= std::size_t{5} * kRequestsPerSecond; }));
  }
  EXPECT_TRUE(region.connected());
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  expect_none_ended();
}

TEST_P(RequestThrottleTest, FenceIsAcknowledgedWhileRequestsWait) {
  const Region region = make_region();
  const Engine other = open_engine();
  const Askers askers{session()};
  ASSERT_TRUE(eventually([&] { return delayed() >= 20; }));
  const Timed timed;
  ASSERT_TRUE(ok(other.fence_region(uri(region.info().name), Rights::kAll)));
  EXPECT_TRUE(timed.took_at_most(10s)) << "it waited for the grace";
  EXPECT_EQ(counted("remora_server_grants_revoked_total", {{"how", "acknowledged"}}), 1);
}

REMORA_CONFORMANCE(RequestThrottleTest);

}  // namespace
}  // namespace remora::test
