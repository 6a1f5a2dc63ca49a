/// A device that takes long to destroy queue pairs, as it does while its interface is down.
/// Sessions that end hold up no other client, and a resumed session waits until its old lanes are
/// destroyed. This program's `ibv_destroy_qp` hangs for as long as a test wants.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <dlfcn.h>
#include <future>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>

#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/server.h"
#include "support/transport.h"

namespace {

/// Blocks callers of pass() between begin() and end(). Any thread.
class Hanging {
 public:
  void begin() {
    const std::lock_guard lock{mutex_};
    hangs_ = true;
  }
  void end() {
    const std::lock_guard lock{mutex_};
    hangs_ = false;
    over_.notify_all();
  }
  void pass() {
    std::unique_lock lock{mutex_};
    waiting_ += 1;
    over_.wait(lock, [this] { return !hangs_; });
    waiting_ -= 1;
  }
  [[nodiscard]] int waiting() {
    const std::lock_guard lock{mutex_};
    return waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool hangs_ = false;
  int waiting_ = 0;
};

Hanging& device() {
  static Hanging one;
  return one;
}

}  // namespace

// Replaces that of libibverbs in all of this program.
extern "C" int ibv_destroy_qp(ibv_qp* pair) {
  device().pass();
  static const auto real = reinterpret_cast<int (*)(ibv_qp*)>(::dlsym(RTLD_NEXT, "ibv_destroy_qp"));
  return real(pair);
}

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

class SlowDeviceTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    config::ServerConfig config =
        server_config(GetParam(), {.lease = std::chrono::minutes{10}, .keep = 60s});
    config.regions.push_back({.name = "target", .size_bytes = 64_KiB});
    server_ = Server::start(config).value();
    address_ = {listen_address(GetParam()), server_->port()};
  }
  void TearDown() override {
    device().end();
    if (server_) server_->stop();
  }
  [[nodiscard]] std::string uri() const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) +
           "/target?transport=rdma";
  }
  [[nodiscard]] double sessions_ended() const {
    return server_->registry().sum("remora_server_sessions_ended_total", {}).value();
  }

  std::optional<Server> server_;
  ServerAddress address_;
};

TEST_P(SlowDeviceTest, SessionsThatEndHoldUpNoOtherClient) {
  const Engine engine = Engine::open({}).value();
  const Session session = engine.connect(uri()).value();
  auto leaving = std::make_unique<RawSession>(address_, GetParam());
  (void)leaving->open("target", Rights::kAll);
  device().begin();
  // This is no message of the protocol: the server ends the session and destroys its lane.
  leaving->send_control(std::vector<std::byte>(100, std::byte{0x5a}));
  ASSERT_TRUE(eventually([&] { return sessions_ended() == 1; }));
  ASSERT_TRUE(eventually([] { return device().waiting() > 0; })) << "nothing hangs";
  // The worker serves requests that need the device, and requests that do not.
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(ok(session.stat("target")));
    EXPECT_TRUE(ok(engine.open_region(uri(), Rights::kAll)));
  }
  EXPECT_EQ(session.stat("target").value().open_count, 0U) << "its grant is still there";
  EXPECT_GT(device().waiting(), 0);
  device().end();
}

TEST_P(SlowDeviceTest, ResumedSessionWaitsForItsOldLanes) {
  const transport::LaneTicket none{};
  auto lost = std::make_unique<RawSession>(address_, GetParam(), &none);
  (void)lost->open("target", Rights::kAll);
  device().begin();
  auto again = std::async(std::launch::async, [&] {
    return std::make_unique<RawSession>(address_, GetParam(), &lost->ticket());
  });
  ASSERT_TRUE(eventually([] { return device().waiting() > 0; })) << "nothing hangs";
  EXPECT_EQ(again.wait_for(500ms), std::future_status::timeout)
      << "it was resumed while its old lanes existed";
  device().end();
  const std::unique_ptr<RawSession> successor = again.get();
  EXPECT_EQ(successor->ticket().session_id, lost->ticket().session_id) << "not resumed";
}

INSTANTIATE_TEST_SUITE_P(Conformance, SlowDeviceTest, testing::Values(TransportKind::kRdma),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

}  // namespace
}  // namespace remora::test
