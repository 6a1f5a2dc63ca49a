/// Memory of a grant that is registered again, because its session has opened lanes on another
/// device or the device has returned: the server serves all other requests meanwhile, and a grant
/// that ends meanwhile leaves nothing. The server is a real one on fake devices.

#include "server/grant_renewal.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>

#include "server/server_core.h"
#include "support/eventually.h"
#include "unit/engine/server/local_clients.h"
#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::detail {
namespace {

using std::chrono::minutes;
using test::eventually;
using test::LocalClient;

/// A device whose registrations for clients do not end while it is held. Any thread.
struct HeldNic {
  static inline verbs::Provider before{};
  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool held = false;
  static inline int waiting = 0;

  static void install(verbs::Provider& table) {
    before = table;
    table.reg_mr = &reg_mr;
    table.reg_mr_iova = &reg_mr_iova;
  }
  static void hold(bool whether) {
    const std::lock_guard lock{mutex};
    held = whether;
    changed.notify_all();
  }
  [[nodiscard]] static int waiting_now() {
    const std::lock_guard lock{mutex};
    return waiting;
  }

 private:
  /// Buffers of the server's own are not for clients.
  static void pass(unsigned access) {
    if ((access & IBV_ACCESS_REMOTE_WRITE) == 0) return;
    std::unique_lock lock{mutex};
    ++waiting;
    changed.wait(lock, [] { return !held; });
    --waiting;
  }
  static ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned access) {
    pass(access);
    return before.reg_mr(domain, address, length, access);
  }
  static ibv_mr* reg_mr_iova(ibv_pd* domain, void* address, std::size_t length, std::uint64_t iova,
                             unsigned access) {
    pass(access);
    return before.reg_mr_iova(domain, address, length, iova, access);
  }
};

/// The test makes the endpoints and their lanes, on its own thread: the fake is for one thread, but
/// for registrations. So no session begins or ends while it does.
class GrantRenewalTest : public test::RdmaEndpointFixture {
 protected:
  /// A session, as its client knows it.
  struct Peer {
    LocalClient client;
    Endpoint* endpoint;
    control::Welcome welcome{};

    control::OpenReply open(const std::string& region) {
      control::Request request;
      request.mutable_open()->set_name(region);
      request.mutable_open()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
      return client.call(std::move(request)).open();
    }
    control::Region stat(const std::string& region) {
      control::Request request;
      request.mutable_stat()->set_name(region);
      return client.call(std::move(request)).stat().region();
    }
    /// Asks for the keys of a grant; returns the id of the request.
    std::uint64_t ask_for_keys(std::uint64_t grant_id) {
      control::Request request;
      request.mutable_extents()->set_grant_id(grant_id);
      return client.ask(std::move(request));
    }
    control::Reply close(std::uint64_t grant_id) {
      control::Request request;
      request.mutable_close()->set_grant_id(grant_id);
      return client.call(std::move(request));
    }
  };

  void SetUp() override {
    play("mlx5");
    fake_.others.emplace_back("fake1");
    HeldNic::install(fake_.table);
    reaper_ = std::make_shared<transport::Reaper>(0);  // destroys on the thread that calls it
    requests_.emplace(listen());
    start();
  }
  void TearDown() override {
    HeldNic::hold(false);
    settle();
    core_.reset();
    requests_.reset();
    RdmaEndpointFixture::TearDown();
  }
  void start() {
    config::ServerConfig config;
    config.transports.rdma = config::Availability::kOff;  // no device of this machine
    config.auth = config::Auth::kNone;
    config.pool = {
        .size_bytes = 1U << 20U, .piece_bytes = 1U << 20U, .huge_pages = config::HugePages::kNever};
    config.regions = {{.name = "one", .size_bytes = 4096}, {.name = "two", .size_bytes = 4096}};
    config.limits.handshake_timeout = minutes{10};
    config.limits.session_lease = minutes{10};
    config.limits.session_keep = minutes{10};
    config.limits.revoke_grace = minutes{10};
    config.limits.drain_timeout = std::chrono::seconds{0};
    auto listener = std::make_unique<test::LocalListener>();
    listener_ = listener.get();
    ListenerSet listeners;
    listeners.add(std::move(listener));
    StatusEndpoint status{std::make_shared<ServerStatusReport>(std::vector<RefusedTransport>{})};
    auto series = ServerMetrics::create(metrics::Registry::create().value()).value();
    core_ = ServerCore::start_behind(config, std::move(series), std::move(listeners),
                                     std::move(status), {})
                .value();
  }
  /// Waits until the worker has done what it was given, and what that gave it.
  void settle() {
    for (int i = 0; i < 2; ++i) {
      const auto done = std::make_shared<std::promise<void>>();
      if (!core_->enqueue([done] { done->set_value(); })) return;
      done->get_future().wait();
    }
  }
  /// From here on endpoints and lanes are of that device.
  void use_device(std::size_t index) {
    fake_.route = index == 0 ? nullptr : &fake_.others[index - 1].cm_context;
  }
  void add_lane(Peer& peer, std::uint32_t number, std::size_t device) {
    use_device(device);
    auto request = next_request(*requests_);
    const auto budget = registrations_->of("fake" + std::to_string(device), 0);
    EXPECT_TRUE(peer.endpoint->add_lane(request, number, {}, {.registrations = budget}).ok());
    use_device(0);
  }
  /// A client that connects to `endpoint`, and says nothing yet.
  Peer arrive(std::unique_ptr<Endpoint> endpoint) {
    auto channel = std::make_shared<test::LocalChannel>();
    Endpoint* const raw = endpoint.get();
    listener_->arrive(std::make_unique<test::LocalEndpoint>(channel, std::move(endpoint)));
    return {LocalClient{channel}, raw};
  }
  enum class Rails : std::uint8_t { kOne, kSeveral };
  /// `before`: the session that the client resumes, and a grant of it.
  static void say_hello(Peer& peer, Rails rails, const Peer* before = nullptr,
                        std::uint64_t grant_id = 0) {
    control::Request request;
    control::Hello& hello = *request.mutable_hello();
    hello.set_version_oldest(control::kVersionOldest);
    hello.set_version_newest(control::kVersionNewest);
    hello.set_auth(control::AUTH_NONE);
    hello.set_client_name("local");
    hello.set_comes_back(true);
    hello.set_lane_keys(true);
    hello.set_rails(rails == Rails::kSeveral);
    if (before != nullptr) {
      hello.mutable_resume()->set_session_id(before->welcome.session_id());
      hello.mutable_resume()->set_lane_secret(before->welcome.lane_secret());
      hello.mutable_resume()->add_grants(grant_id);
    }
    peer.welcome = peer.client.call(std::move(request)).hello();
    EXPECT_EQ(peer.welcome.resumed(), before != nullptr);
  }
  /// A session with rails and one lane, on the first device.
  Peer with_rails() {
    Peer peer = arrive(connect());
    say_hello(peer, Rails::kSeveral);
    add_lane(peer, 0, 0);
    return peer;
  }
  static void expect_keys(const control::Reply& reply, const control::OpenReply& opened,
                          int lanes) {
    const auto& extents = reply.extents().extents();
    ASSERT_EQ(extents.size(), opened.extents().size()) << reply.failure().code();
    for (int i = 0; i < extents.size(); ++i) {
      EXPECT_EQ(extents[i].address(), opened.extents(i).address());
      ASSERT_EQ(extents[i].lane_keys_size(), lanes);
      for (const std::uint32_t key : extents[i].lane_keys()) EXPECT_NE(key, 0U);
    }
  }
  [[nodiscard]] static bool held_up(int registrations) {
    return eventually([&] { return HeldNic::waiting_now() == registrations; });
  }

  std::optional<verbs::ConnectionListener> requests_;  ///< where lanes arrive
  test::LocalListener* listener_ = nullptr;            ///< owned by the server
  std::unique_ptr<ServerCore> core_;
};

TEST_F(GrantRenewalTest, RequestsOfOtherClientsAreServedMeanwhile) {
  Peer owner = with_rails();
  Peer other = with_rails();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  const std::uint64_t asked = owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  EXPECT_EQ(other.stat("one").open_count(), 1U);
  EXPECT_EQ(owner.stat("two").name(), "two") << "nor does the client itself wait";
  EXPECT_FALSE(owner.client.has_answer(asked));
  HeldNic::hold(false);
  expect_keys(owner.client.answer(asked), opened, 2);
}

TEST_F(GrantRenewalTest, ClientThatAsksForSeveralGrantsIsAnsweredForEach) {
  Peer owner = with_rails();
  Peer other = with_rails();
  const auto one = owner.open("one");
  const auto two = owner.open("two");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  const std::uint64_t asked_one = owner.ask_for_keys(one.grant_id());
  const std::uint64_t asked_two = owner.ask_for_keys(two.grant_id());
  const std::uint64_t once_more = owner.ask_for_keys(one.grant_id());
  ASSERT_TRUE(held_up(2)) << "they are registered beside each other";
  EXPECT_EQ(other.stat("two").open_count(), 1U);
  HeldNic::hold(false);
  expect_keys(owner.client.answer(asked_one), one, 2);
  expect_keys(owner.client.answer(asked_two), two, 2);
  expect_keys(owner.client.answer(once_more), one, 2);
  EXPECT_EQ(fake_.uses("reg_mr_iova"), 4) << "each grant once on each device";
}

TEST_F(GrantRenewalTest, GrantThatIsThereOnEachDeviceIsNotRegisteredAgain) {
  Peer owner = with_rails();
  const auto opened = owner.open("one");
  HeldNic::hold(true);
  expect_keys(owner.client.answer(owner.ask_for_keys(opened.grant_id())), opened, 1);
  EXPECT_EQ(fake_.uses("reg_mr_iova"), 1);
}

TEST_F(GrantRenewalTest, GrantThatItsClientClosesMeanwhileLeavesNothing) {
  Peer owner = with_rails();
  Peer other = with_rails();
  const std::uint64_t before = registrations_->used();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  const std::uint64_t asked = owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  EXPECT_TRUE(owner.close(opened.grant_id()).has_close());
  EXPECT_EQ(other.stat("one").open_count(), 1U) << "its memory is used for nothing else yet";
  HeldNic::hold(false);
  const control::Reply answer = owner.client.answer(asked);
  EXPECT_EQ(answer.failure().code(), static_cast<std::uint32_t>(Code::kInvalidArgument));
  EXPECT_EQ(registrations_->used(), before + 1) << "that of the lane";
  EXPECT_EQ(other.stat("one").open_count(), 0U);
}

TEST_F(GrantRenewalTest, FenceEndsWhenTheMemoryIsNoLongerRegistered) {
  Peer owner = with_rails();
  Peer other = with_rails();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  const std::uint64_t epoch = other.stat("one").epoch();
  HeldNic::hold(true);
  const std::uint64_t asked = owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  control::Request fence;
  fence.mutable_fence()->set_name("one");
  fence.mutable_fence()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  const std::uint64_t fenced = other.client.ask(std::move(fence));
  const control::Event event = owner.client.next_event();
  EXPECT_EQ(event.revoking().grant_id(), opened.grant_id());
  control::Request stopped;
  stopped.mutable_event_ack()->set_event_id(event.id());
  EXPECT_TRUE(owner.client.call(std::move(stopped)).has_event_ack());
  EXPECT_EQ(owner.stat("one").epoch(), epoch) << "the fence is over";
  EXPECT_FALSE(other.client.has_answer(fenced));
  HeldNic::hold(false);
  EXPECT_TRUE(other.client.answer(fenced).has_fence());
  EXPECT_GT(owner.stat("one").epoch(), epoch);
  const control::Failure failure = owner.client.answer(asked).failure();
  EXPECT_EQ(failure.code(), static_cast<std::uint32_t>(Code::kAccessRefused));
  EXPECT_EQ(failure.reason(), static_cast<std::uint32_t>(Reason::kFenced));
}

TEST_F(GrantRenewalTest, SessionThatIsResumedMeanwhileGetsTheGrantWhenItIsThere) {
  Peer owner = with_rails();
  Peer other = with_rails();
  auto next_endpoint = connect();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  (void)owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  owner.client.channel().hang_up();
  ASSERT_TRUE(eventually([&] { return owner.client.channel().ended(); }));
  settle();
  Peer next = arrive(std::move(next_endpoint));
  say_hello(next, Rails::kSeveral, &owner, opened.grant_id());
  settle();
  add_lane(next, 0, 0);
  add_lane(next, 1, 1);
  const std::uint64_t asked = next.ask_for_keys(opened.grant_id());
  EXPECT_EQ(other.stat("one").open_count(), 1U);
  EXPECT_FALSE(next.client.has_answer(asked));
  HeldNic::hold(false);
  expect_keys(next.client.answer(asked), opened, 2);
  EXPECT_EQ(fake_.uses("reg_mr_iova"), 2) << "once on each device";
  EXPECT_TRUE(next.close(opened.grant_id()).has_close());
  EXPECT_EQ(other.stat("one").open_count(), 0U);
}

TEST_F(GrantRenewalTest, SessionThatEndsMeanwhileLeavesNothing) {
  Peer other = with_rails();
  const std::uint64_t before = registrations_->used();
  Peer owner = with_rails();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  (void)owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  control::Request goodbye;
  goodbye.mutable_goodbye();
  EXPECT_TRUE(owner.client.call(std::move(goodbye)).has_goodbye());
  owner.client.channel().hang_up();
  ASSERT_TRUE(eventually([&] { return core_->session_count() == 1; }));
  EXPECT_EQ(other.stat("two").open_count(), 0U);
  HeldNic::hold(false);
  EXPECT_TRUE(eventually([&] { return other.stat("one").open_count() == 0; }));
  EXPECT_TRUE(eventually([&] { return registrations_->used() == before; }));
}

TEST_F(GrantRenewalTest, ServerThatStopsMeanwhileEndsInOrder) {
  Peer owner = with_rails();
  const auto opened = owner.open("one");
  add_lane(owner, 1, 1);
  HeldNic::hold(true);
  (void)owner.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  auto stopped = std::async(std::launch::async, [this] { core_->stop(); });
  EXPECT_TRUE(eventually([&] { return owner.client.channel().ended(); }));
  HeldNic::hold(false);
  stopped.get();
}

TEST_F(GrantRenewalTest, DeviceThatReturnsHoldsUpNoOtherClient) {
  Peer owner = arrive(connect());
  say_hello(owner, Rails::kOne);
  use_device(1);
  Peer other = arrive(connect());
  use_device(0);
  say_hello(other, Rails::kOne);
  const auto opened = owner.open("one");
  verbs::connection_manager_devices(fake_.provider()).value().front().mark_gone();
  fake_.device_count = 0;
  const int pairs = fake_.uses("destroy_qp");
  listener_->fail({.device = "fake0"});
  ASSERT_TRUE(eventually([&] { return fake_.uses("destroy_qp") > pairs; }));
  settle();
  fake_.device_count = 1;
  Peer next = arrive(connect());
  HeldNic::hold(true);
  say_hello(next, Rails::kOne, &owner, opened.grant_id());
  const std::uint64_t asked = next.ask_for_keys(opened.grant_id());
  ASSERT_TRUE(held_up(1));
  EXPECT_EQ(other.stat("one").open_count(), 1U);
  EXPECT_FALSE(next.client.has_answer(asked));
  HeldNic::hold(false);
  expect_keys(next.client.answer(asked), opened, 0);
}

/// As DeviceListener::restore(), which registers the pool where grants are windows.
TEST_F(GrantRenewalTest, DeviceThatIsServedAgainHoldsUpNoClient) {
  Peer peer = with_rails();
  const auto begun = std::make_shared<std::promise<void>>();
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  listener_->set_job([begun, released](const std::stop_token& /*stop*/) {
    begun->set_value();
    released.wait();
  });
  begun->get_future().wait();
  EXPECT_EQ(peer.stat("one").name(), "one");
  release.set_value();
}

TEST_F(GrantRenewalTest, StopOfTheServerEndsTheRegistrationOfThePoolWithAReturnedDevice) {
  const auto begun = std::make_shared<std::promise<void>>();
  const auto told = std::make_shared<std::promise<bool>>();
  listener_->set_job([begun, told](const std::stop_token& stop) {
    begun->set_value();
    told->set_value(eventually([&] { return stop.stop_requested(); }));
  });
  begun->get_future().wait();
  core_->stop();
  EXPECT_TRUE(told->get_future().get()) << "while it registers";
}

/// A first grant, as the ones that follow.
TEST_F(GrantRenewalTest, OpenHoldsUpNoOtherClientEither) {
  Peer owner = with_rails();
  Peer other = with_rails();
  HeldNic::hold(true);
  control::Request request;
  request.mutable_open()->set_name("one");
  request.mutable_open()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  const std::uint64_t asked = owner.client.ask(std::move(request));
  ASSERT_TRUE(held_up(1));
  EXPECT_EQ(other.stat("two").open_count(), 0U);
  EXPECT_FALSE(owner.client.has_answer(asked));
  HeldNic::hold(false);
  EXPECT_TRUE(owner.client.answer(asked).has_open());
}

}  // namespace
}  // namespace remora::detail
