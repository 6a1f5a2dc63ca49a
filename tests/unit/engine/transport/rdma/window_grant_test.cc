/// Grants as windows, on a device that binds what it is told to.

#include "transport/rdma/window_grant.h"

#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <stop_token>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

using verbs::Access;

constexpr std::uint64_t kPieceBytes = 8192;

/// Keys as different as a NIC's, and what becomes of binds.
struct WindowNic {
  static inline verbs::Provider before{};
  static inline std::uint32_t next_key = 1;
  static inline bool silent = false;  ///< nothing posted completes
  static inline std::atomic<int> polls{0};
  static inline ibv_wc_status ends_with = IBV_WC_SUCCESS;

  static inline void (*at_alloc)() = nullptr;
  static inline void (*at_poll)() = nullptr;
  static inline WindowLane* lane = nullptr;  ///< for those two

  static ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type) {
    if (at_alloc != nullptr) at_alloc();
    ibv_mw* const window = before.alloc_mw(domain, type);
    if (window != nullptr) window->rkey = next_key++ << 8U;
    return window;
  }
  static int post_send(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** bad) {
    const int failed = before.post_send(pair, chain, bad);
    auto& completions = test::fake().completions;
    for (ibv_wc& completion : completions) completion.status = ends_with;
    if (silent) completions.clear();
    return failed;
  }
  static int poll_cq(ibv_cq* queue, int count, ibv_wc* completions) {
    ++polls;
    if (at_poll != nullptr) at_poll();
    return silent ? 0 : before.poll_cq(queue, count, completions);
  }
};

class RdmaWindowsTest : public test::FakeTest {
 protected:
  void SetUp() override {
    WindowNic::before = fake_.table;
    WindowNic::next_key = 1;
    WindowNic::silent = false;
    WindowNic::at_alloc = nullptr;
    WindowNic::at_poll = nullptr;
    WindowNic::ends_with = IBV_WC_SUCCESS;
    fake_.table.alloc_mw = &WindowNic::alloc_mw;
    fake_.table.post_send = &WindowNic::post_send;
    fake_.table.poll_cq = &WindowNic::poll_cq;
    device_ = open();
  }
  void TearDown() override {
    device_ = {};
    FakeTest::TearDown();
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  [[nodiscard]] std::span<std::byte> piece(std::size_t index) noexcept {
    return std::span{memory_}.subspan(index * kPieceBytes, kPieceBytes);
  }
  [[nodiscard]] MemoryStretch stretch(std::size_t index, std::uint64_t offset,
                                      std::uint64_t length) noexcept {
    return {piece(index).data() + offset, length};
  }
  /// Two pieces.
  std::shared_ptr<const LeasedMemory> acquire_lease(std::shared_ptr<void> hold = nullptr) {
    const std::array pieces{stretch(1, 0, kPieceBytes), stretch(0, 0, kPieceBytes)};
    return LeasedMemory::create(device_, pieces, std::move(hold),
                                {registrations_.of("fake0", 0), windows_.of("fake0", 0)})
        .value();
  }
  /// A lane whose queue pair is connected.
  struct Connected {
    std::shared_ptr<WindowLane> lane;
    std::unique_ptr<verbs::QueuePair<verbs::Rc>> pair;
    ~Connected() {
      if (lane != nullptr) lane->end();
    }
  };
  Connected connect(const LeasedMemory& leased) {
    auto lane = WindowLane::create(device_).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{leased.domain(), lane->queue(), lane->queue()};
    auto prepared = builder.send_depth(WindowLane::kBinds).build().value();
    const auto self = prepared.endpoint();
    auto pair =
        std::make_unique<verbs::QueuePair<verbs::Rc>>(std::move(prepared).connect(self).value());
    lane->begin(*pair);
    return {std::move(lane), std::move(pair)};
  }
  BudgetShare share(std::uint64_t count) {
    return BudgetShare::take(windows_.of("fake0", 0), count).value();
  }
  [[nodiscard]] int broken() const {
    int count = 0;
    for (const auto& [attributes, mask] : fake_.modified)
      count += (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR ? 1 : 0;
    return count;
  }

  RegistrationBudgets registrations_{100};
  WindowBudgets windows_{100};
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kPieceBytes);
  verbs::Device device_;
};

TEST_F(RdmaWindowsTest, LeasedPiecesHaveNoRemoteRightsAndGoBeforeWhatKeepsThem) {
  std::string alive_at_the_end = "never";
  {
    const auto leased = acquire_lease(std::shared_ptr<void>{
        memory_.data(), [&](void* /*bytes*/) { alive_at_the_end = fake_.live(); }});
    ASSERT_EQ(fake_.registered.size(), 2U);
    for (const auto& each : fake_.registered)
      EXPECT_EQ(each.access,
                static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    EXPECT_EQ(registrations_.used(), 2U);
  }
  EXPECT_EQ(alive_at_the_end.find("mr"), std::string::npos) << alive_at_the_end;
  EXPECT_EQ(registrations_.used(), 0U);
}

TEST_F(RdmaWindowsTest, StretchIsFoundWithinOnePieceOnly) {
  const auto leased = acquire_lease();
  const auto found = leased->find(stretch(1, 8, kPieceBytes - 8));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset_bytes, 8U);
  EXPECT_EQ(found->address(), reinterpret_cast<std::uintptr_t>(piece(1).data()) + 8);
  EXPECT_TRUE(leased->find(stretch(0, 0, kPieceBytes)));
  EXPECT_FALSE(leased->find(stretch(0, 1, kPieceBytes))) << "into the next one";
  EXPECT_FALSE(leased->find(stretch(1, 1, kPieceBytes))) << "behind the last";
  std::array<std::byte, 8> elsewhere{};
  EXPECT_FALSE(leased->find({elsewhere.data(), elsewhere.size()}));
}

TEST_F(RdmaWindowsTest, PiecesBeyondTheBudgetAreRefusedBeforeTheDeviceIsAsked) {
  RegistrationBudgets one{1};
  const std::array pieces{stretch(0, 0, kPieceBytes), stretch(1, 0, kPieceBytes)};
  const auto refused =
      LeasedMemory::create(device_, pieces, nullptr, {one.of("", 0), windows_.of("", 0)});
  EXPECT_CODE(refused, kLimitExceeded);
  EXPECT_TRUE(fake_.registered.empty());
}

TEST_F(RdmaWindowsTest, RegisteredBytesAreToldAndStopEndsItBetweenTwoPieces) {
  const std::array pieces{stretch(0, 0, kPieceBytes), stretch(1, 0, kPieceBytes)};
  std::vector<std::uint64_t> told;
  std::stop_source source;
  const auto create = [&](std::uint64_t stop_at) {
    told.clear();
    return LeasedMemory::create(device_, pieces, nullptr,
                                {registrations_.of("fake0", 0), windows_.of("fake0", 0)},
                                source.get_token(), [&](std::uint64_t done_bytes) {
                                  told.push_back(done_bytes);
                                  if (done_bytes == stop_at) source.request_stop();
                                });
  };
  EXPECT_TRUE(create(UINT64_MAX).ok());
  EXPECT_EQ(told, (std::vector<std::uint64_t>{0, kPieceBytes, 2 * kPieceBytes}));
  const auto stopped = create(kPieceBytes);
  EXPECT_CODE(stopped, kCancelled);
  EXPECT_EQ(told, (std::vector<std::uint64_t>{0, kPieceBytes}));
  EXPECT_EQ(fake_.registered.size(), 3U) << "two, and one before the stop";
}

/// One lane, to which stretches are bound.
class WindowLaneTest : public RdmaWindowsTest {
 protected:
  void SetUp() override {
    RdmaWindowsTest::SetUp();
    leased_ = acquire_lease();
    link_.reset(new Connected{connect(*leased_)});  // NOLINT: it does not move
  }
  void TearDown() override {
    link_.reset();
    leased_.reset();
    RdmaWindowsTest::TearDown();
  }
  [[nodiscard]] WindowLane& lane() { return *link_->lane; }
  [[nodiscard]] std::vector<LeasedRange> stretches(std::size_t count) {
    std::vector<LeasedRange> some;
    for (std::size_t i = 0; i < count; ++i)
      some.push_back(*leased_->find(stretch(i % 2, 64 * i, 64)));
    return some;
  }
  Result<std::vector<std::uint32_t>> bind(std::size_t count = 1, Deadline deadline = later()) {
    return bind_for(&owner_, count, deadline);
  }
  Result<std::vector<std::uint32_t>> bind_for(WindowLane::Owner owner, std::size_t count = 1,
                                              Deadline deadline = later()) {
    return lane().bind(owner, stretches(count), Access::kRemoteRead, deadline);
  }
  void expect_nothing_left() {
    EXPECT_FALSE(lane().has(&owner_));
    EXPECT_EQ(fake_.uses("dealloc_mw"), fake_.uses("alloc_mw"));
  }

  const int owner_ = 0;
  const int other_ = 0;
  std::shared_ptr<const LeasedMemory> leased_;
  std::unique_ptr<Connected> link_;
};

TEST_F(WindowLaneTest, ManyStretchesAreBoundInChainsThatFitTheSendQueue) {
  constexpr std::size_t kStretches = 2 * WindowLane::kBinds + 8;
  const auto keys = bind(kStretches).value();
  EXPECT_EQ(std::set<std::uint32_t>(keys.begin(), keys.end()).size(), kStretches);
  ASSERT_EQ(fake_.sent.size(), 3U);
  EXPECT_EQ(fake_.sent[0].size(), WindowLane::kBinds);
  EXPECT_EQ(fake_.sent[2].size(), 8U);
  const ibv_send_wr& last = fake_.sent[2].back();
  EXPECT_EQ(last.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(last.bind_mw.rkey, keys.back());
  EXPECT_EQ(last.bind_mw.bind_info.addr, stretches(kStretches).back().address());
  EXPECT_EQ(last.bind_mw.bind_info.length, 64U);
  EXPECT_EQ(last.bind_mw.bind_info.mw_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
  // What is bound stays bound, by the same keys.
  EXPECT_EQ(bind(kStretches).value(), keys);
  EXPECT_EQ(fake_.sent.size(), 3U);
  EXPECT_TRUE(lane().has(&owner_));
  EXPECT_TRUE(lane().drop(&owner_));
  expect_nothing_left();
}

/// A request that was posted late, by a thread that was stopped, must not pass by a newer window.
TEST_F(WindowLaneTest, KeysOfWindowsThatWentDoNotReturnOnTheLane) {
  fake_.play(*test::find_device_profile("mlx5"));
  fake_.table.alloc_mw = WindowNic::before.alloc_mw;
  std::set<std::uint32_t> before;
  for (int round = 0; round < 100; ++round) {
    const auto keys = bind(3);
    ASSERT_OK(keys);
    for (const std::uint32_t key : *keys) EXPECT_TRUE(before.insert(key).second) << round;
    EXPECT_TRUE(lane().drop(&owner_));
  }
  EXPECT_EQ(fake_.uses("alloc_mw"), 300) << "the device is not asked again";
  expect_nothing_left();
}

TEST_F(WindowLaneTest, WindowWithoutAKeyLeftIsPassedOver) {
  fake_.play(*test::find_device_profile("mlx5"));
  fake_.table.alloc_mw = WindowNic::before.alloc_mw;
  std::set<std::uint32_t> before;
  for (int round = 0; round < 600; ++round) {
    const auto keys = bind(1);
    ASSERT_OK(keys);
    EXPECT_TRUE(before.insert(keys->front()).second) << round;
    EXPECT_TRUE(lane().drop(&owner_));
  }
  expect_nothing_left();
}

TEST_F(WindowLaneTest, EndedLaneHasNoWindowsAndBindsNoMore) {
  ASSERT_OK(bind_for(&owner_, 2));
  ASSERT_OK(bind_for(&other_, 2));
  lane().end();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 4);
  EXPECT_CODE(bind(2), kConnectionLost);
  EXPECT_EQ(fake_.uses("alloc_mw"), 4) << "the queue pair may be gone";
  lane().end();
}

TEST_F(WindowLaneTest, BindThatFailsBreaksTheLaneAndLeavesNothing) {
  WindowNic::ends_with = IBV_WC_MW_BIND_ERR;
  const auto failed = bind();
  EXPECT_CODE(failed, kProvider);
  EXPECT_EQ(failed.error().completion_status(), CompletionStatus::kMemoryWindowBindError);
  EXPECT_EQ(broken(), 1);
  expect_nothing_left();
}

TEST_F(WindowLaneTest, BindThatIsFlushedHasItsLaneGone) {
  WindowNic::ends_with = IBV_WC_WR_FLUSH_ERR;
  EXPECT_CODE(bind(), kConnectionLost);
  expect_nothing_left();
}

/// Others of the session have operations on it.
TEST_F(WindowLaneTest, ChainThatIsNotPostedLeavesTheLaneAsItWas) {
  fake_.fail("post_send", 1, ENOMEM);
  EXPECT_CODE(bind(), kWouldBlock);
  EXPECT_EQ(broken(), 0);
  expect_nothing_left();
  ASSERT_OK(bind());
}

/// Its key is still of use, and its memory about to be another's.
TEST_F(WindowLaneTest, WindowThatIsNotTakenBackBreaksTheLane) {
  ASSERT_OK(bind(2));
  fake_.fail("dealloc_mw", 1, EIO);
  const std::uint64_t failures = verbs::teardown_failure_count();
  EXPECT_TRUE(lane().drop(&owner_));
  EXPECT_EQ(broken(), 1);
  EXPECT_EQ(verbs::teardown_failure_count(), failures + 1) << "the other one is";
}

TEST_F(WindowLaneTest, WindowsThatAreNotToBeHadLeaveTheLaneAsItWas) {
  fake_.fail("alloc_mw", 2, ENOMEM);
  EXPECT_CODE(bind(2), kOutOfMemory);
  EXPECT_EQ(broken(), 0);
  EXPECT_TRUE(fake_.sent.empty());
  ASSERT_OK(bind(2));
}

TEST_F(WindowLaneTest, DeviceThatGivesNoWindowsInTimeLeavesTheLaneAsItWas) {
  WindowNic::at_alloc = [] { std::this_thread::sleep_for(std::chrono::milliseconds{2}); };
  EXPECT_CODE(bind(60, Clock::now() + std::chrono::milliseconds{20}), kTimedOut);
  EXPECT_EQ(broken(), 0);
  expect_nothing_left();
  EXPECT_TRUE(fake_.sent.empty());
}

TEST_F(WindowLaneTest, DeviceThatDoesNotAnswerIsWaitedForUntilTheDeadline) {
  WindowNic::silent = true;
  const auto began = Clock::now();
  EXPECT_CODE(bind(1, began + std::chrono::seconds{1}), kTimedOut);
  EXPECT_GE(Clock::now() - began, std::chrono::seconds{1});
  EXPECT_EQ(broken(), 1) << "what it binds later belongs to no owner";
}

/// However long all of a grant's windows may take.
TEST_F(WindowLaneTest, ChainThatIsNotAnsweredEndsTheWait) {
  WindowNic::silent = true;
  EXPECT_CODE(bind(1, Clock::now() + std::chrono::hours{1}), kTimedOut);
  EXPECT_EQ(broken(), 1);
}

/// The control thread says that a lane ends, and does not wait for threads that bind or free.
TEST_F(WindowLaneTest, StoppedLaneBindsNoMoreAndKeepsItsWindowsUntilItsEnd) {
  ASSERT_OK(bind());
  lane().stop();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 0);
  EXPECT_CODE(bind_for(&other_), kConnectionLost);
  lane().end();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 1);
}

TEST_F(WindowLaneTest, StopEndsTheWaitForADevice) {
  WindowNic::silent = true;
  WindowNic::at_poll = [] { WindowNic::lane->stop(); };
  WindowNic::lane = &lane();
  EXPECT_CODE(bind(), kConnectionLost);
}

TEST_F(WindowLaneTest, StopEndsTheAllocationOfMore) {
  WindowNic::at_alloc = [] { WindowNic::lane->stop(); };
  WindowNic::lane = &lane();
  EXPECT_CODE(bind(60), kConnectionLost);
  EXPECT_EQ(fake_.uses("alloc_mw"), 1);
  expect_nothing_left();
  EXPECT_TRUE(fake_.sent.empty());
}

/// The thread that ends a lane waits until the thread that binds has stopped.
TEST_F(WindowLaneTest, EndComesBehindABindThatIsUnderWay) {
  WindowNic::silent = true;
  WindowNic::polls = 0;
  std::thread ends{[&] {
    while (WindowNic::polls == 0) std::this_thread::yield();
    lane().end();
  }};
  EXPECT_FALSE(bind());
  ends.join();
  expect_nothing_left();
}

TEST_F(RdmaWindowsTest, GrantHasAKeyForEachExtentOnEachLane) {
  const auto leased = acquire_lease();
  const Connected first = connect(*leased);
  const Connected third = connect(*leased);
  const std::array extents{stretch(0, 128, 512), stretch(1, 0, 256)};
  auto grant =
      WindowGrant::create(leased, {.extents = extents, .rights = Rights::kRead | Rights::kAtomic})
          .value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  ASSERT_OK(grant->renew({first.lane, nullptr, third.lane}, wire, keys, later()));
  ASSERT_EQ(wire.size(), 2U);
  EXPECT_EQ(wire[0].remote_address, reinterpret_cast<std::uintptr_t>(piece(0).data()) + 128);
  EXPECT_EQ(wire[1].start_bytes, 512U);
  EXPECT_EQ(wire[1].length_bytes, 256U);
  ASSERT_EQ(keys.lanes, 3U);
  ASSERT_EQ(keys.keys.size(), 6U);
  EXPECT_EQ(keys.keys[1], 0U) << "there is no such lane";
  EXPECT_EQ(wire[1].remote_key, keys.keys[3]) << "that of the first lane";
  const std::set<std::uint32_t> distinct{keys.keys.begin(), keys.keys.end()};
  EXPECT_EQ(distinct.size(), 5U) << "four keys, and none";
  const bool atomics = fake_.attributes.atomic_cap != IBV_ATOMIC_NONE;
  EXPECT_EQ(fake_.sent.back().back().bind_mw.bind_info.mw_access_flags,
            IBV_ACCESS_REMOTE_READ | (atomics ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0U));
  EXPECT_EQ(windows_.used(), 4U);
  // A lane that comes later gets what it lacks; the others keep what they have.
  const Connected second = connect(*leased);
  const LaneKeys before = keys;
  const std::size_t posted = fake_.sent.size();
  ASSERT_OK(grant->renew({first.lane, second.lane, third.lane}, wire, keys, later()));
  EXPECT_EQ(fake_.sent.size(), posted + 1);
  EXPECT_EQ(keys.keys[0], before.keys[0]);
  EXPECT_NE(keys.keys[1], 0U);
  EXPECT_EQ(windows_.used(), 6U);
  grant.reset();
  EXPECT_EQ(windows_.used(), 0U);
  EXPECT_EQ(fake_.uses("dealloc_mw"), 6);
}

TEST_F(RdmaWindowsTest, GrantIsBoundAnewOnTheLanesThatFollow) {
  const auto leased = acquire_lease();
  const std::array extents{stretch(0, 0, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  std::uint32_t before = 0;
  {
    const Connected lane = connect(*leased);
    ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
    before = keys.keys[0];
  }
  EXPECT_EQ(fake_.uses("dealloc_mw"), 1) << "they went with their lane";
  EXPECT_EQ(windows_.used(), 1U) << "and are its grant's to have again";
  // Others take all the rest meanwhile: a session that comes back gets what it had, and no more.
  EXPECT_CODE(BudgetShare::take(windows_.of("fake0", 0), 100), kLimitExceeded);
  const BudgetShare others = share(99);
  const Connected lane = connect(*leased);
  ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
  EXPECT_NE(keys.keys[0], before);
  EXPECT_EQ(windows_.used(), 100U);
  const Connected more = connect(*leased);
  EXPECT_CODE(grant->renew({lane.lane, more.lane}, wire, keys, later()), kLimitExceeded);
  grant.reset();
}

TEST_F(RdmaWindowsTest, LanesThatAreNotItsSessionsAnyMoreKeepNothingOfAGrantNorItThem) {
  const auto leased = acquire_lease();
  const std::array extents{stretch(0, 0, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  const Connected after = connect(*leased);
  std::weak_ptr<WindowLane> gone;
  {
    const Connected before = connect(*leased);
    gone = before.lane;
    ASSERT_OK(grant->renew({before.lane}, wire, keys, later()));
    ASSERT_OK(grant->renew({after.lane}, wire, keys, later()));
    EXPECT_FALSE(before.lane->has(grant.get())) << "though it has not ended";
    EXPECT_EQ(windows_.used(), 1U);
    ASSERT_OK(grant->renew({before.lane}, wire, keys, later()));
  }
  EXPECT_TRUE(gone.expired()) << "with its completion queue";
  EXPECT_EQ(fake_.uses("dealloc_mw"), fake_.uses("alloc_mw"));
  grant.reset();
  EXPECT_EQ(windows_.used(), 0U);
}

TEST_F(RdmaWindowsTest, WindowsBeyondTheBudgetAreRefusedBeforeTheDeviceIsAsked) {
  const auto leased = acquire_lease();
  const Connected first = connect(*leased);
  const Connected second = connect(*leased);
  const BudgetShare others = share(97);
  const std::array extents{stretch(0, 0, 64), stretch(0, 64, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kRead}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  const auto refused = grant->renew({first.lane, second.lane}, wire, keys, later());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(refused.error().subject(), "limits.windows_max");
  EXPECT_EQ(refused.error().asked(), 101U);
  EXPECT_EQ(fake_.uses("alloc_mw"), 0) << "not even those that there was room for";
  ASSERT_OK(grant->renew({first.lane}, wire, keys, later()));
  EXPECT_EQ(windows_.used(), 99U);
  grant.reset();
}

TEST_F(RdmaWindowsTest, OwnMemoryIsRegisteredForTheGrantAndCutIntoWindows) {
  constexpr std::uint64_t kOwnBytes = (std::uint64_t{2} << 30U) + 4096;
  fake_.attributes.max_mr_size = std::uint64_t{1} << 40U;
  device_ = {};
  device_ = open();
  void* const own =
      ::mmap(nullptr, kOwnBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(own, MAP_FAILED);
  {
    const auto leased = acquire_lease();
    const Connected lane = connect(*leased);
    const std::array extents{MemoryStretch{static_cast<std::byte*>(own), kOwnBytes}};
    auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
    EXPECT_EQ(registrations_.used(), 3U);
    std::vector<WireExtent> wire;
    LaneKeys keys;
    ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
    ASSERT_EQ(wire.size(), 3U) << "no window is longer than 1 GiB";
    EXPECT_EQ(wire[2].start_bytes, std::uint64_t{2} << 30U);
    EXPECT_EQ(wire[2].length_bytes, 4096U);
    EXPECT_EQ(wire[2].remote_address, reinterpret_cast<std::uintptr_t>(own) + wire[2].start_bytes);
    grant.reset();
    EXPECT_EQ(registrations_.used(), 2U);
  }
  ::munmap(own, kOwnBytes);
}

}  // namespace
}  // namespace remora::transport::rdma
