#include <algorithm>
#include <numeric>
#include <random>

#include "fake_verbs.h"

namespace remora::test {
namespace {

std::string g_reported;

void remember(const Error& error) noexcept { g_reported = error.operation(); }

class TeardownTest : public FakeTest {
 protected:
  void SetUp() override {
    g_reported.clear();
    before_ = verbs::set_teardown_failure_handler(&remember);
  }
  void TearDown() override {
    verbs::set_teardown_failure_handler(before_);
    FakeTest::TearDown();
  }
  verbs::TeardownFailureHandler before_ = nullptr;
};

TEST_F(TeardownTest, FailedDestructorIsCountedAndReported) {
  for (const auto& [call, name] :
       {std::pair{"destroy_qp", "ibv_destroy_qp"}, std::pair{"dereg_mr", "ibv_dereg_mr"},
        std::pair{"destroy_cq", "ibv_destroy_cq"}, std::pair{"dealloc_pd", "ibv_dealloc_pd"},
        std::pair{"destroy_comp_channel", "ibv_destroy_comp_channel"},
        std::pair{"close_device", "ibv_close_device"}}) {
    const auto count = verbs::teardown_failure_count();
    {
      const FakeRig rig{open()};
      const auto pair = rig.connected();
      fake_.fail(call, 1, EBUSY);
    }
    EXPECT_EQ(verbs::teardown_failure_count(), count + 1) << call;
    EXPECT_EQ(g_reported, name);
  }
}

TEST_F(TeardownTest, WithoutAHandlerItIsOnlyCounted) {
  verbs::set_teardown_failure_handler(nullptr);
  const auto count = verbs::teardown_failure_count();
  {
    const auto device = open();
    fake_.fail("close_device");
  }
  EXPECT_EQ(verbs::teardown_failure_count(), count + 1);
}

// The fake notes every parent destroyed before its child.
TEST_F(TeardownTest, ParentsMayGoFirst) {
  std::optional<FakeRig> rig{open()};
  const auto pair = rig->connected();
  auto device = std::move(rig->device);
  device = {};
  rig->domain = {};
  rig->queue = {};
  EXPECT_NE(fake_.live(), "");
  rig.reset();
}

TEST_F(TeardownTest, MoveAssignmentOfEveryChildIsSafe) {
  auto first = std::make_unique<FakeRig>(open());
  auto second = std::make_unique<FakeRig>(open());
  auto pair = first->connected();
  auto other_pair = second->connected();
  first->queue = {};
  first->domain = {};
  first->device = {};
  first->memory = std::move(second->memory);  // the old region is the last of its domain but one
  pair = std::move(other_pair);               // the old pair is the last of its domain and queue
  second.reset();
  EXPECT_TRUE(pair.query_state().ok());
}

TEST_F(TeardownTest, HandlesMayBeReassignedWhileChildrenLive) {
  FakeRig rig{open()};
  const auto pair = rig.connected();
  rig.device = open();
  rig.domain = rig.device.allocate_domain().value();
  rig.queue = rig.device.create_completion_queue({.depth = 8}).value();
  EXPECT_TRUE(pair.query_state().ok());
}

// One of everything, each made from the others.
struct Everything {
  explicit Everything(verbs::Device opened) : device{std::move(opened)} {
    using verbs::Access;
    domain = device->allocate_domain().value();
    channel = device->create_completion_channel().value();
    queue = device->create_completion_queue({.channel = *channel}).value();
    extended =
        device->create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value();
    shared = verbs::SharedReceiveQueue::create(*domain).value();
    memory.emplace(verbs::MemoryRegion::register_owned(*domain, std::vector<std::byte>(4096),
                                                       Access::kLocalWrite | Access::kWindowBind)
                       .value());
    pair.emplace(verbs::QueuePairBuilder<verbs::Rc>{*domain, *queue, *extended}
                     .shared_receive_queue(*shared)
                     .create()
                     .value());
    window.emplace(pair->allocate_window().value());
    auto batch = pair->start();
    batch.bind_window(1, *window, *memory, 0, 64, Access::kRemoteRead);
    batch.post().value();
    verbs::AddressVector path;
    path.route = verbs::GlobalRoute{};
    peer.emplace(verbs::AddressHandle::create(*domain, path).value(), 1, 2);
    events = verbs::AsyncEvents::open(*device).value();
  }

  template <typename Visit>
  static void for_each_member(Everything& a, Everything& b, std::size_t wanted, Visit&& visit) {
    std::size_t index = 0;
    const auto next = [&](auto& one, auto& other) {
      if (index++ == wanted) visit(one, other);
    };
    next(a.device, b.device);
    next(a.domain, b.domain);
    next(a.channel, b.channel);
    next(a.queue, b.queue);
    next(a.extended, b.extended);
    next(a.shared, b.shared);
    next(a.memory, b.memory);
    next(a.pair, b.pair);
    next(a.window, b.window);
    next(a.peer, b.peer);
    next(a.events, b.events);
  }
  static constexpr std::size_t kMembers = 11;

  std::optional<verbs::Device> device;
  std::optional<verbs::ProtectionDomain> domain;
  std::optional<verbs::CompletionChannel> channel;
  std::optional<verbs::CompletionQueue> queue;
  std::optional<verbs::CompletionQueue> extended;
  std::optional<verbs::SharedReceiveQueue> shared;
  std::optional<verbs::MemoryRegion> memory;
  std::optional<verbs::QueuePair<verbs::Rc>> pair;
  std::optional<verbs::MemoryWindow> window;
  std::optional<verbs::DatagramPeer> peer;
  std::optional<verbs::AsyncEvents> events;
};

// In 300 orders: each member is destroyed, or another one is moved into it, before or after any of
// its parents and children. The fake notes what a device would refuse, and what would hang.
TEST_F(TeardownTest, AnyOrderOfDestructionAndMoveAssignmentIsSafe) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random{seed};
    Everything first{open()};
    Everything second{open()};
    std::array<std::size_t, Everything::kMembers> order{};
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    const unsigned choices = static_cast<unsigned>(random());
    for (const std::size_t index : order)
      Everything::for_each_member(first, second, index, [&](auto& one, auto& other) {
        if ((choices >> index & 1) != 0)
          one = std::move(other);
        else
          one.reset();
      });
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t index : order)
      Everything::for_each_member(second, first, index, [](auto& one, auto&) { one.reset(); });
    if (HasFailure()) return;
  }
  EXPECT_EQ(g_reported, "");
}

}  // namespace
}  // namespace remora::test
