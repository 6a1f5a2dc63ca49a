/// What an administrator does with a server: asks whether it answers, lists its sessions, ends one,
/// and drains it.

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/engine/engine.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

class AdministrationTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override { config.limits.drain_timeout = 20s; }
  /// A client of that name, which counts what its handlers are told.
  Engine client(const std::string& name) {
    EngineOptions options = patient_options();
    options.client_name = name;
    options.handlers.on_drain = [this](const SessionEvent& event) {
      EXPECT_EQ(event.reason, Reason::kDraining);
      ++drains_;
    };
    options.handlers.on_lost = [this](const SessionEvent& event) {
      lost_by_ = event.reason;
      ++lost_;
    };
    return Engine::open(options).value();
  }
  /// The only session of the client of that name.
  [[nodiscard]] SessionInfo session_of(const std::string& name) {
    const auto all = session().sessions();
    EXPECT_TRUE(ok(all));
    if (!all) return {};
    EXPECT_EQ(std::count_if(all->begin(), all->end(),
                            [&](const SessionInfo& each) { return each.client_name == name; }),
              1);
    for (const SessionInfo& each : *all)
      if (each.client_name == name) return each;
    return {};
  }
  [[nodiscard]] double ended_by_admin() {
    return server()
        .registry()
        .sum("remora_server_sessions_ended_total", {{"reason", "by_admin"}})
        .value();
  }

  std::atomic<int> drains_{0};
  std::atomic<int> lost_{0};
  std::atomic<Reason> lost_by_{Reason::kNone};
};

TEST_P(AdministrationTest, PingIsAnswered) {
  for (int i = 0; i < 3; ++i) {
    const auto took = session().ping();
    ASSERT_TRUE(ok(took));
    EXPECT_GT(took->count(), 0);
  }
}

TEST_P(AdministrationTest, SessionsAreListedInTheOrderOfTheirIds) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine other = client("other");
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const Region again = other.open_region(uri(made.name), Rights::kAll).value();
  const auto all = session().sessions();
  ASSERT_TRUE(ok(all));
  ASSERT_EQ(all->size(), 2U);
  EXPECT_LT((*all)[0].id, (*all)[1].id);
  const SessionInfo listed = session_of("other");
  EXPECT_EQ(listed.open_regions, 2U);
  EXPECT_EQ(listed.transport, transport());
  EXPECT_FALSE(listed.peer.empty());
  EXPECT_FALSE(listed.client_proven);
  EXPECT_FALSE(listed.lost);
  EXPECT_FALSE(listed.own);
  EXPECT_GE(listed.age.count(), 0);
  const SessionInfo own = session_of("conformance");
  EXPECT_TRUE(own.own);
  EXPECT_EQ(own.open_regions, 0U);
}

/// More than a page of them.
TEST_P(AdministrationTest, AllPagesAreFetched) {
  if (over_rdma()) GTEST_SKIP() << "so many connections take an emulated device too long";
  constexpr std::size_t kClients = 40;
  std::vector<Engine> engines;
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < kClients; ++i) {
    engines.push_back(client("c" + std::to_string(i)));
    sessions.push_back(engines.back().connect(uri()).value());
  }
  const auto all = session().sessions();
  ASSERT_TRUE(ok(all));
  EXPECT_EQ(all->size(), kClients + 1);
}

TEST_P(AdministrationTest, EndedSessionHasLostItsRegionsWhenTheAnswerComes) {
  const RegionInfo made = create({.size_bytes = 4096});
  {
    const Engine other = client("other");
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    ASSERT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
    ASSERT_TRUE(ok(session().end_session(session_of("other").id)));
    EXPECT_EQ(server().status().grants, 0U);
    EXPECT_EQ(session().sessions()->size(), 1U);
    EXPECT_EQ(ended_by_admin(), 1);
    EXPECT_TRUE(eventually([&] { return lost_ == 1; })) << "it does not come back";
    // The last message names the reason, if it arrives.
    EXPECT_THAT(lost_by_.load(),
                ::testing::AnyOf(Reason::kRevoked, Reason::kLapsed, Reason::kPeerGone))
        << to_string(lost_by_);
    EXPECT_FALSE(region.write_zeroes(ByteOffset{0}, 64).ok());
    // The client may open it again, in a new session.
    const auto anew = other.open_region(uri(made.name), Rights::kAll);
    ASSERT_TRUE(ok(anew));
    EXPECT_TRUE(ok(anew->write_zeroes(ByteOffset{0}, 64)));
  }
  EXPECT_TRUE(ok(session().usage()));
}

TEST_P(AdministrationTest, SessionThatIsNotThereOrIsOnesOwnIsNotEnded) {
  const std::uint64_t own = session_of("conformance").id;
  EXPECT_TRUE(fails_with(session().end_session(own), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(session().end_session(own ^ 1U), Code::kNotFound));
  EXPECT_TRUE(fails_with(session().end_session(0), Code::kNotFound));
  EXPECT_TRUE(ok(session().usage()));
  EXPECT_EQ(ended_by_admin(), 0);
}

TEST_P(AdministrationTest, DrainTellsTheSessionsAndRefusesNewGrantsUntilItsEnd) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine other = client("other");
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  ASSERT_TRUE(ok(session().drain_state()));
  EXPECT_FALSE(session().drain_state()->draining);
  const auto begun = session().drain();
  ASSERT_TRUE(ok(begun));
  EXPECT_TRUE(begun->draining);
  EXPECT_GT(begun->remaining.count(), 0);
  EXPECT_LE(begun->remaining, 20s);
  EXPECT_EQ(begun->sessions, 1U);
  EXPECT_EQ(begun->open_regions, 1U);
  EXPECT_TRUE(eventually([&] { return drains_ == 1; }));
  // What is open goes on; nothing more is given.
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  const auto refused = other.open_region(uri(made.name), Rights::kAll);
  ASSERT_TRUE(fails_with(refused, Code::kBusy));
  EXPECT_EQ(refused.error().reason(), Reason::kDraining) << refused.error();
  const auto not_made = session().create_region(spec(unique_name(), {.size_bytes = 4096}));
  EXPECT_TRUE(fails_with(not_made, Code::kBusy));
  EXPECT_TRUE(ok(session().stat(made.name)));
  // A session that comes during the drain is told, too.
  const Engine late = client("late");
  const Session newcomer = late.connect(uri()).value();
  EXPECT_TRUE(eventually([&] { return drains_ == 2; }));
  EXPECT_EQ(session().drain_state()->sessions, 2U);
  const auto ended = session().end_drain();
  ASSERT_TRUE(ok(ended));
  EXPECT_FALSE(ended->draining);
  EXPECT_EQ(ended->remaining.count(), 0);
  EXPECT_TRUE(ok(other.open_region(uri(made.name), Rights::kAll)));
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  // Another drain is told of, to each session once.
  ASSERT_TRUE(ok(session().drain()));
  ASSERT_TRUE(ok(session().drain()));
  EXPECT_TRUE(eventually([&] { return drains_ == 4; }));
  ASSERT_TRUE(ok(session().end_drain()));
  ASSERT_TRUE(ok(session().drain()));
  EXPECT_TRUE(eventually([&] { return drains_ == 6; }));
}

/// A client that does not answer may hold the region: another one takes its work over.
TEST_P(AdministrationTest, DrainedServerFencesARegionForASessionThatItHas) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine former = client("former");
  const Engine next = client("next");
  const Region old = former.open_region(uri(made.name), Rights::kAll).value();
  const Session session_of_next = next.connect(uri()).value();
  ASSERT_TRUE(ok(session().drain()));
  const auto fenced = next.fence_region(uri(made.name), Rights::kAll);
  ASSERT_TRUE(ok(fenced));
  EXPECT_GT(fenced->info().epoch, made.epoch);
  EXPECT_TRUE(ok(fenced->write_zeroes(ByteOffset{0}, 64)));
  EXPECT_TRUE(fails_with(old.write_zeroes(ByteOffset{0}, 64), Code::kAccessRefused));
  EXPECT_TRUE(fails_with(former.open_region(uri(made.name), Rights::kAll), Code::kBusy));
  const auto again = fenced->fence();
  ASSERT_TRUE(ok(again)) << "also from a grant";
  EXPECT_GT(again->info().epoch, fenced->info().epoch);
}

TEST_P(AdministrationTest, DrainedServerStopsAsAnyOther) {
  ASSERT_TRUE(ok(session().drain()));
  ASSERT_TRUE(ok(session().drain())) << "once more changes nothing";
  end_session();
  server().stop();
  EXPECT_EQ(server().status().sessions, 0U);
}

/// The application that embeds the server has the same functions, without a session.
TEST_P(AdministrationTest, ApplicationDrainsItsServer) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine other = client("other");
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const auto begun = server().drain();
  ASSERT_TRUE(ok(begun));
  EXPECT_TRUE(begun->draining);
  EXPECT_GT(begun->remaining.count(), 0);
  EXPECT_EQ(begun->sessions, 2U) << "no session asks, so none is left out";
  EXPECT_EQ(begun->open_regions, 1U);
  EXPECT_TRUE(eventually([&] { return drains_ == 1; }));
  EXPECT_TRUE(session().drain_state()->draining) << "it is the same drain";
  EXPECT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  EXPECT_TRUE(fails_with(other.open_region(uri(made.name), Rights::kAll), Code::kBusy));
  EXPECT_TRUE(ok(server().create_region(spec(unique_name(), {.size_bytes = 4096}))))
      << "the application is not refused";
  ASSERT_TRUE(ok(server().drain())) << "once more changes nothing";
  const auto ended = server().end_drain();
  ASSERT_TRUE(ok(ended));
  EXPECT_FALSE(ended->draining);
  EXPECT_EQ(ended->remaining.count(), 0);
  EXPECT_TRUE(ok(other.open_region(uri(made.name), Rights::kAll)));
  ASSERT_TRUE(ok(session().drain()));
  EXPECT_TRUE(server().drain_state()->draining);
  EXPECT_TRUE(eventually([&] { return drains_ == 2; })) << "for the two drains, one time each";
}

TEST_P(AdministrationTest, ApplicationListsAndEndsSessions) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine other = client("other");
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const auto all = server().sessions();
  ASSERT_TRUE(ok(all));
  ASSERT_EQ(all->size(), 2U);
  EXPECT_LT((*all)[0].id, (*all)[1].id);
  for (const SessionInfo& each : *all) {
    EXPECT_FALSE(each.own);
    EXPECT_EQ(each.transport, transport());
    EXPECT_EQ(each.open_regions, each.client_name == "other" ? 1U : 0U);
  }
  EXPECT_TRUE(fails_with(server().end_session(0), Code::kNotFound));
  EXPECT_EQ(ended_by_admin(), 0);
  ASSERT_TRUE(ok(server().end_session(session_of("other").id)));
  EXPECT_EQ(server().status().grants, 0U);
  EXPECT_EQ(server().sessions()->size(), 1U);
  EXPECT_EQ(ended_by_admin(), 1);
  EXPECT_TRUE(eventually([&] { return lost_ == 1; }));
  EXPECT_FALSE(region.write_zeroes(ByteOffset{0}, 64).ok());
  EXPECT_TRUE(ok(session().usage()));
}

/// The handler runs on the thread that the end of a session delivers the last notices to.
TEST_P(AdministrationTest, HandlerOfANoticeAdministersItsServer) {
  const RegionInfo made = create({.size_bytes = 4096});
  const Engine other = client("other");
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const std::uint64_t id = session_of("other").id;
  std::atomic<bool> handled{false};
  ASSERT_TRUE(ok(server().on_notify(made.name, [&](const Notification&) {
    if (handled) return;
    EXPECT_EQ(server().sessions()->size(), 2U);
    EXPECT_TRUE(ok(server().drain()));
    EXPECT_TRUE(ok(server().end_drain()));
    EXPECT_TRUE(ok(server().end_session(id)));
    handled = true;
  })));
  const std::vector<std::byte> bytes(64);
  // The handler may end the session before the client has read the answer.
  (void)region.write_notify(ByteOffset{0}, bytes, 1);
  EXPECT_TRUE(eventually([&] { return handled.load(); }));
  ASSERT_TRUE(ok(server().on_notify(made.name, {})));
}

TEST_P(AdministrationTest, ServerThatHasStoppedAnswersClosed) {
  end_session();
  server().stop();
  EXPECT_TRUE(fails_with(server().sessions(), Code::kClosed));
  EXPECT_TRUE(fails_with(server().end_session(1), Code::kClosed));
  EXPECT_TRUE(fails_with(server().drain(), Code::kClosed));
  EXPECT_TRUE(fails_with(server().end_drain(), Code::kClosed));
  EXPECT_TRUE(fails_with(server().drain_state(), Code::kClosed));
}

REMORA_CONFORMANCE(AdministrationTest);

/// A server with keys, one client of which is an administrator.
class AdministrationRightTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.auth = config::Auth::kKeys;
    config.clients.resize(2);
    config.clients[0].name = "root";
    config.clients[0].key = root_;
    config.clients[0].admin = true;
    config.clients[1].name = "bob";
    config.clients[1].key = bob_;
    config.clients[1].create = true;
  }
  void configure_engine(EngineOptions& options) const override {
    options.client_name = "root";
    options.key = root_;
  }
  config::SecretKey root_ = config::SecretKey::generate().value();
  config::SecretKey bob_ = config::SecretKey::generate().value();
};

TEST_P(AdministrationRightTest, OnlyAnAdministratorHasIt) {
  EngineOptions options = patient_options();
  options.client_name = "bob";
  options.key = bob_;
  const Engine engine = Engine::open(options).value();
  const Session bob = engine.connect(uri()).value();
  EXPECT_TRUE(ok(bob.ping()));
  EXPECT_TRUE(fails_with(bob.sessions(), Code::kNoRight));
  EXPECT_TRUE(fails_with(bob.drain(), Code::kNoRight));
  EXPECT_TRUE(fails_with(bob.end_drain(), Code::kNoRight));
  EXPECT_TRUE(fails_with(bob.drain_state(), Code::kNoRight));
  const auto all = session().sessions();
  ASSERT_TRUE(ok(all));
  std::optional<SessionInfo> root;
  std::optional<SessionInfo> his;
  for (const SessionInfo& each : *all) (each.own ? root : his) = each;
  ASSERT_TRUE(root && his);
  EXPECT_TRUE(his->client_proven);
  EXPECT_EQ(his->client_name, "bob");
  EXPECT_TRUE(fails_with(bob.end_session(root->id), Code::kNoRight));
  EXPECT_FALSE(session().drain_state()->draining);
  EXPECT_TRUE(session().connected());
  EXPECT_TRUE(ok(session().end_session(his->id)));
  EXPECT_TRUE(eventually([&] { return !bob.connected(); }));
}

REMORA_CONFORMANCE(AdministrationRightTest);

}  // namespace
}  // namespace remora::test
