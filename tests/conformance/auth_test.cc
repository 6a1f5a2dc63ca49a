/// A server with keys, over each transport: it admits clients with the right key, and no others.
/// auth_peers_test.cc has peers that speak the protocol without the client library.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"
#include "support/fault_line.h"

namespace remora::test {
namespace {

using config::SecretKey;
using Clock = std::chrono::steady_clock;

class AuthTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.auth = config::Auth::kKeys;
    config.clients.resize(2);
    config.clients[0].name = "alice";
    config.clients[0].key = alice_;
    config.clients[0].create = true;
    config.clients[1].name = "bob";
    config.clients[1].key = bob_;
  }
  void configure_engine(EngineOptions& options) const override {
    options.client_name = "alice";
    options.key = alice_;
  }
  void TearDown() override {
    if (line_.operations != 0) line_.print(to_string(transport()));
    ConformanceTest::TearDown();
  }
  /// A client with this name, and this key or none, opens `region`.
  Result<Region> open_as(const std::string& region, const std::string& name,
                         const std::optional<SecretKey>& key) {
    EngineOptions options = patient_options();
    options.client_name = name;
    options.key = key;
    const Engine engine = Engine::open(options).value();
    const auto began = Clock::now();
    auto opened = engine.open_region(uri(region), Rights::kRead);
    ++line_.rounds;
    const bool reasoned = !opened && opened.error().reason() != Reason::kNone;
    line_.ended(opened     ? std::string_view{}
                : reasoned ? to_string(opened.error().reason())
                           : to_string(opened.error().code()),
                Clock::now() - began);
    return opened;
  }
  /// The same for a client that the server refuses. Over rdma the server spends at most a tenth of
  /// its time on sending refusals: a client that got no reason tries again.
  Result<Region> open_refused(const std::string& region, const std::string& name,
                              const std::optional<SecretKey>& key) {
    for (Patience patience;;) {
      ++attempts_;
      auto opened = open_as(region, name, key);
      const bool untold = over_rdma() && !opened && opened.error().code() == Code::kConnectionLost;
      if (!untold || patience.over()) return opened;
    }
  }
  static testing::AssertionResult is_refused(const Result<Region>& opened) {
    if (opened) return testing::AssertionFailure() << "it was let in";
    if (opened.error().code() == Code::kConnectionRefused &&
        opened.error().reason() == Reason::kAuthentication)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << opened.error();
  }
  [[nodiscard]] double refused(const char* reason) {
    return server()
        .registry()
        .sum("remora_server_sessions_refused_total", {{"reason", reason}})
        .value();
  }

  /// The attempts of open_refused() since the last call.
  [[nodiscard]] double attempts() { return std::exchange(attempts_, 0); }

  SecretKey alice_ = SecretKey::generate().value();
  SecretKey bob_ = SecretKey::generate().value();
  FaultLine line_;

 private:
  int attempts_ = 0;
};

TEST_P(AuthTest, OnlyTheRightKeyLetsIn) {
  const Region region = make_region();
  const std::string name = region.info().name;
  EXPECT_TRUE(ok(open_as(name, "alice", alice_)));
  EXPECT_TRUE(is_refused(open_refused(name, "alice", SecretKey::generate().value())));
  EXPECT_TRUE(is_refused(open_refused(name, "alice", bob_))) << "another's key";
  EXPECT_EQ(refused("wrong_key"), attempts());
  EXPECT_TRUE(is_refused(open_refused(name, "alice", std::nullopt)));
  EXPECT_EQ(refused("no_key"), attempts());
  EXPECT_TRUE(is_refused(open_refused(name, "carol", alice_)));
  EXPECT_EQ(refused("unknown_client"), attempts());
  // The admitted session continues, and is the only one.
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(eventually([&] { return server().status().sessions == 1; }));
}

/// For a client, a region to which it has no right does not exist.
TEST_P(AuthTest, RightKeyOfAnotherClientDoesNotOpenWhatIsNotItsOwn) {
  const Region region = make_region();
  const auto opened = open_as(region.info().name, "bob", bob_);
  EXPECT_TRUE(fails_with(opened, Code::kUnknownRegion));
}

/// The server ends the session of an admitted client when the application removes the client's key.
TEST_P(AuthTest, KeyThatIsTakenAwayEndsItsSession) {
  const RegionInfo made = create();
  forget(made.name);  // no client may remove it any more
  std::vector<config::ClientConfig> clients(1);
  clients[0].name = "bob";
  clients[0].key = bob_;
  ASSERT_TRUE(ok(server().set_clients(clients)));
  EXPECT_TRUE(eventually([&] { return !session().connected(); }));
  EXPECT_TRUE(is_refused(open_refused(made.name, "alice", alice_)));
  EXPECT_TRUE(eventually([&] { return server().status().sessions == 0; }));
}

REMORA_CONFORMANCE(AuthTest);

}  // namespace
}  // namespace remora::test
