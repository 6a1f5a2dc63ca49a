/// Requests of a session that ends before the worker has served them: they have no effect. And
/// regions that expire while the worker is busy: they are one job for it.

#include <atomic>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/metrics/registry.h>

#include "base/log.h"
#include "raw_channel.h"
#include "raw_session.h"
#include "server/server_core.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using config::SecretKey;
using detail::ServerCore;

class GoneSessionTest : public testing::Test {
 protected:
  void TearDown() override {
    if (core_) core_->stop();
  }
  /// Starts a server with one region that all clients may use. With `keys`, its only client is
  /// alice, with all rights. It offers tcp, and with `shm` that too.
  void start(bool keys, bool shm = false) {
    config::ServerConfig config = server_config(TransportKind::kTcp);
    config.log.level = config::LogLevel::kOff;
    config.limits.revoke_grace = 1s;
    config.limits.session_keep = 60s;
    if (shm) config.transports.shm = config::Availability::kRequired;
    config.regions.push_back({.name = "target", .size_bytes = 64_KiB, .shm = shm});
    if (keys) {
      config.auth = config::Auth::kKeys;
      config.clients = clients(old_);
    }
    core_ = ServerCore::start(config, {}).value();
    address_ = {config.listen.address, core_->port()};
  }
  static std::vector<config::ClientConfig> clients(const SecretKey& key) {
    config::ClientConfig alice;
    alice.name = "alice";
    alice.key = key;
    alice.admin = true;
    return {alice};
  }
  /// alice, while the server accepts her old key and the new one.
  static std::vector<config::ClientConfig> changing(const SecretKey& old_key,
                                                    const SecretKey& key) {
    auto both = clients(key);
    both[0].previous_key = old_key;
    return both;
  }
  [[nodiscard]] std::unique_ptr<RawChannel> alice_by(const SecretKey& key) const {
    auto channel = std::make_unique<RawChannel>(address_);
    EXPECT_TRUE(channel->shake_hands("alice", key).admission);
    return channel;
  }
  /// Waits until the server has queued a request of a session for the worker.
  void wait_until_asked() const {
    const auto waits = [&] {
      for (const auto& session : core_->sessions(100))
        if (session->connection().has_unanswered()) return true;
      return false;
    };
    EXPECT_TRUE(eventually([&] { return waits(); }));
    EXPECT_TRUE(waits());
  }
  /// Blocks the worker until this is destroyed.
  class BlockedWorker {
   public:
    explicit BlockedWorker(ServerCore& core) {
      core.enqueue([goes = goes_.get_future().share(), this] {
        began_.set_value();
        goes.wait();
      });
      began_.get_future().wait();
    }
    ~BlockedWorker() { goes_.set_value(); }
    BlockedWorker(const BlockedWorker&) = delete;
    BlockedWorker& operator=(const BlockedWorker&) = delete;

   private:
    std::promise<void> goes_;
    std::promise<void> began_;
  };
  void let_worker_come_round() const {
    std::promise<void> done;
    core_->enqueue([&] { done.set_value(); });
    done.get_future().wait();
  }
  [[nodiscard]] RegionInfo target() const {
    return core_->catalog().find("target").value()->info();
  }
  /// `fencer` fences the region. During the grace of that fence, `ask` sends a request of another
  /// session, which waits until the fence is done, and `end` ends that session. Expects that the
  /// request has no effect: the region is as the fence left it, and the fencer has its grant.
  void expect_nothing_comes_behind_a_fence(const std::function<RawChannel&()>& holder,
                                           const std::function<RawChannel&()>& fencer,
                                           const std::function<void()>& ask,
                                           const std::function<void()>& end) {
    const RegionInfo before = target();
    control::Request open;
    open.mutable_open()->set_name("target");
    open.mutable_open()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
    ASSERT_FALSE(failure_of(holder().ask(RawChannel::request(open, 10))));
    control::Request fence;
    fence.mutable_fence()->set_name("target");
    fence.mutable_fence()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
    fencer().say(RawChannel::request(fence, 10));
    wait_until_asked();
    let_worker_come_round();
    ask();
    std::this_thread::sleep_for(100ms);  // the server receives the request
    let_worker_come_round();
    end();
    const auto fenced = fencer().hear();
    ASSERT_TRUE(fenced);
    EXPECT_FALSE(failure_of(fenced));
    std::this_thread::sleep_for(100ms);
    let_worker_come_round();
    EXPECT_TRUE(core_->catalog().find("target").ok()) << "it was removed";
    EXPECT_EQ(target().epoch, before.epoch + 1) << "another session has fenced it again";
    EXPECT_EQ(target().size_bytes, before.size_bytes);
    EXPECT_EQ(fencer().hear(1500ms), std::nullopt)
        << "an event came: the server revokes the new grant";
    EXPECT_EQ(target().epoch, before.epoch + 1);
    EXPECT_EQ(target().open_count, 1U);
  }
  void expect_nothing_of_a_key_that_is_gone(const control::Request& request) {
    start(true);
    const SecretKey fresh = SecretKey::generate().value();
    ASSERT_TRUE(ok(core_->set_clients(changing(old_, fresh))));
    const auto holder = alice_by(fresh);
    const auto fencer = alice_by(fresh);
    const auto thief = alice_by(old_);
    expect_nothing_comes_behind_a_fence(
        [&]() -> RawChannel& { return *holder; }, [&]() -> RawChannel& { return *fencer; },
        [&] { thief->say(RawChannel::request(request, 10)); },
        [&] { ASSERT_TRUE(ok(core_->set_clients(clients(fresh)))); });
  }

  const RuntimeDir sockets_;
  SecretKey old_ = SecretKey::generate().value();
  std::unique_ptr<ServerCore> core_;
  ServerAddress address_;
};

TEST_F(GoneSessionTest, FenceThatWaitsForItsTurnGoesWithItsKey) {
  control::Request request;
  request.mutable_fence()->set_name("target");
  request.mutable_fence()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  expect_nothing_of_a_key_that_is_gone(request);
}

TEST_F(GoneSessionTest, RemovalThatWaitsForItsTurnGoesWithItsKey) {
  control::Request request;
  request.mutable_remove()->set_name("target");
  request.mutable_remove()->set_removal(control::REMOVAL_NOW);
  expect_nothing_of_a_key_that_is_gone(request);
}

TEST_F(GoneSessionTest, ResizeThatWaitsForItsTurnGoesWithItsKey) {
  control::Request request;
  request.mutable_resize()->set_name("target");
  request.mutable_resize()->set_size_bytes(128_KiB);
  expect_nothing_of_a_key_that_is_gone(request);
}

TEST_F(GoneSessionTest, FenceThatWaitsForItsTurnGoesWithItsConnection) {
  start(false);
  const auto open_channel = [&] {
    auto channel = std::make_unique<RawChannel>(address_);
    control::Request request;
    request.mutable_hello()->set_version_oldest(control::kVersionOldest);
    request.mutable_hello()->set_version_newest(control::kVersionNewest);
    request.mutable_hello()->set_auth(control::AUTH_NONE);
    request.mutable_hello()->set_client_name("raw");
    EXPECT_TRUE(lets_in(channel->ask(RawChannel::request(request, 1))));
    return channel;
  };
  const auto holder = open_channel();
  const auto fencer = open_channel();
  const transport::LaneTicket no_session{};
  RawSession lost{address_, TransportKind::kTcp, &no_session};
  std::unique_ptr<RawSession> successor;
  control::Request request;
  request.mutable_fence()->set_name("target");
  request.mutable_fence()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  expect_nothing_comes_behind_a_fence(
      [&]() -> RawChannel& { return *holder; }, [&]() -> RawChannel& { return *fencer; },
      [&] { lost.send_control(RawChannel::request(request, 10)); },
      [&] {
        successor = std::make_unique<RawSession>(address_, TransportKind::kTcp, &lost.ticket());
        ASSERT_EQ(successor->ticket().session_id, lost.ticket().session_id) << "not resumed";
      });
}

/// The client disconnects while its fence is in the grace, not before it: the other sessions lose
/// their grants all the same.
TEST_F(GoneSessionTest, FenceWhoseClientIsGoneOpensNothing) {
  start(true, true);
  const auto come = [&](TransportKind transport) {
    auto channel = std::make_unique<RawChannel>(address_, transport);
    EXPECT_TRUE(channel->shake_hands("alice", old_, RawChannel::Leaves::kMayComeBack).admission);
    return channel;
  };
  // The fencer uses shm: a tcp endpoint that has shut down makes no grants anyway.
  const auto holder = come(TransportKind::kTcp);
  auto fencer = come(TransportKind::kShm);
  control::Request open;
  open.mutable_open()->set_name("target");
  open.mutable_open()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  ASSERT_FALSE(failure_of(holder->ask(RawChannel::request(open, 10))));
  ASSERT_EQ(target().open_count, 1U);
  control::Request fence;
  fence.mutable_fence()->set_name("target");
  fence.mutable_fence()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  fencer->say(RawChannel::request(fence, 10));
  wait_until_asked();
  let_worker_come_round();
  fencer.reset();
  // The holder never acknowledges: it loses its grant after the grace, and no session gets a new
  // one.
  EXPECT_TRUE(eventually([&] { return target().open_count == 0; }));
  EXPECT_EQ(target().open_count, 0U);
}

TEST_F(GoneSessionTest, RequestThatWaitsForTheWorkerGoesWithItsKey) {
  start(true);
  const auto thief = alice_by(old_);
  control::Request request;
  control::Region& region = *request.mutable_create()->mutable_region();
  region.set_name("stolen");
  region.set_size_bytes(64_KiB);
  region.set_block_bytes(4096);
  region.set_rights(static_cast<std::uint32_t>(Rights::kAll));
  region.set_atomic_domain("none");
  {
    const BlockedWorker blocked{*core_};
    thief->say(RawChannel::request(request, 10));
    wait_until_asked();
    ASSERT_TRUE(ok(core_->set_clients(clients(SecretKey::generate().value()))));
  }
  let_worker_come_round();
  EXPECT_FALSE(core_->catalog().find("stolen").ok());
}

/// Calls `call` once, when the server logs its first line.
class AtTheFirstLine {
 public:
  explicit AtTheFirstLine(std::function<void()> call)
      : before_{log::logger().sinks()}, sink_{std::make_shared<Sink>(std::move(call))} {
    log::logger().sinks() = {sink_};
  }
  ~AtTheFirstLine() { log::logger().sinks() = before_; }
  AtTheFirstLine(const AtTheFirstLine&) = delete;
  AtTheFirstLine& operator=(const AtTheFirstLine&) = delete;

 private:
  /// Without a lock: other threads may log during the call.
  class Sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
   public:
    explicit Sink(std::function<void()> call) : call_{std::move(call)} {}

   private:
    void sink_it_(const spdlog::details::log_msg& /*line*/) override {
      if (!said_.exchange(true)) call_();
    }
    void flush_() override {}
    std::function<void()> call_;
    std::atomic<bool> said_{false};
  };
  std::vector<spdlog::sink_ptr> before_;
  spdlog::sink_ptr sink_;
};

/// Sessions hang up while the server is about to end the first of them.
TEST_F(GoneSessionTest, NoSessionOfAKeyThatIsGoneIsKept) {
  start(true);
  std::vector<std::unique_ptr<RawChannel>> leaving;
  for (int i = 0; i < 8; ++i) {
    auto channel = std::make_unique<RawChannel>(address_);
    ASSERT_TRUE(channel->shake_hands("alice", old_, RawChannel::Leaves::kMayComeBack).admission);
    leaving.push_back(std::move(channel));
  }
  {
    const AtTheFirstLine all_go{[&] {
      leaving.clear();
      std::this_thread::sleep_for(300ms);  // the server notices that they hang up
    }};
    ASSERT_TRUE(ok(core_->set_clients(clients(SecretKey::generate().value()))));
  }
  EXPECT_TRUE(leaving.empty()) << "no line said that a session ends";
  EXPECT_TRUE(eventually([&] { return core_->session_count() == 0; }));
  let_worker_come_round();
  metrics::Registry& registry = *core_->metrics().registry();
  EXPECT_EQ(registry.value(registry.gauge("remora_server_sessions_kept", "-").value()), 0);
}

TEST_F(GoneSessionTest, ExpiredRegionsAreOneJobUntilTheWorkerGetsToThem) {
  start(false);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(ok(core_->regions().create({.name = "short" + std::to_string(i),
                                            .size_bytes = 4096,
                                            .atomic_domain = "none",
                                            .lifetime = Lifetime::kTtl,
                                            .ttl = 100ms})));
  {
    const BlockedWorker blocked{*core_};
    std::this_thread::sleep_for(1s);
    EXPECT_LE(core_->jobs_waiting(), 1U);
  }
  EXPECT_TRUE(eventually([&] { return core_->catalog().size() == 1; }));
  EXPECT_EQ(core_->catalog().size(), 1U);
  ASSERT_TRUE(ok(core_->regions().create({.name = "again",
                                          .size_bytes = 4096,
                                          .atomic_domain = "none",
                                          .lifetime = Lifetime::kTtl,
                                          .ttl = 100ms})));
  EXPECT_TRUE(eventually([&] { return core_->catalog().size() == 1; }));
  EXPECT_EQ(core_->catalog().size(), 1U) << "what expires later goes too";
}

}  // namespace
}  // namespace remora::test
