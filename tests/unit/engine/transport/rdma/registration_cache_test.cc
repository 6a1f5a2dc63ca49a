// What becomes of memory that is not registered: a lease on a kept registration, or a copy.

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "client/datapath/queued_lane_driver.h"
#include "unit/engine/fake_lane.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::MemoryLease;
using transport::Opcode;
using transport::WireExtent;

/// Keys by 1 KiB of address, so that a lease has several.
class FakeCache final : public transport::RegistrationCache {
 public:
  static constexpr std::uintptr_t kPart = 1024;

  MemoryLease acquire_lease(std::span<std::byte> bytes, Deadline /*deadline*/) noexcept override {
    asked.push_back(bytes);
    if (empty) return {};
    ++out;
    return {this};
  }
  MemoryLease find_lease(std::span<std::byte> bytes) noexcept override {
    return known ? acquire_lease(bytes, Deadline::max()) : MemoryLease{};
  }
  bool trim() noexcept override { return false; }
  void release_lease(MemoryLease lease) noexcept override {
    EXPECT_EQ(lease.registration, this);
    --out;
  }
  [[nodiscard]] Key key_of(MemoryLease /*lease*/,
                           std::span<std::byte> part) const noexcept override {
    const auto at = reinterpret_cast<std::uintptr_t>(part.data());
    return {static_cast<std::uint32_t>(at / kPart), (at / kPart + 1) * kPart - at};
  }

  std::vector<std::span<std::byte>> asked;
  int out = 0;
  bool empty = false;
  bool known = false;
};

class RegistrationCacheTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kFromBytes = 512;

  void SetUp() override {
    auto lane = std::make_unique<FakeLane>(8, 4096);
    lane_ = lane.get();
    bounce_ = SlotStore::create(4, 1024).value();
    auto metrics = ClientMetrics::create(registry_, TransportKind::kRdma).value();
    driver_ = std::make_unique<QueuedLaneDriver>(
        std::move(lane),
        QueuedLaneDriver::Options{.spin = std::chrono::nanoseconds{0},
                                  .needs_keys = true,
                                  .bounce = bounce_,
                                  .cache = cache_,
                                  .cache_from_bytes = kFromBytes},
        metrics, [] {});
  }
  OperationRecord& make(Opcode opcode, std::span<std::byte> local) {
    auto& operation = *operations_.emplace_back(std::make_unique<OperationRecord>());
    operation.request.opcode = opcode;
    operation.request.local = local.data();
    operation.length_bytes = local.size();
    make_split(operation, extents_);
    operation.submitted = Clock::now();
    operation.deadline = Clock::now() + std::chrono::minutes{1};
    operation.sink = &sink_;
    return operation;
  }
  void submit(OperationRecord& operation) {
    driver_->acquire_lease(operation, LaneDriver::Lease::kNew);
    OperationList alone;
    alone.append(operation);
    driver_->submit(alone);
  }
  void wait_all(std::size_t count) {
    const auto earliest = [] { return Deadline::max(); };
    driver_->wait(sink_, count, DeadlineSource{earliest});
  }

  std::shared_ptr<FakeCache> cache_ = std::make_shared<FakeCache>();
  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::shared_ptr<SlotStore> bounce_;
  FakeLane* lane_ = nullptr;
  std::array<CompletionSink::Run, 16> sink_ring_{};
  CompletionSink sink_{sink_ring_};
  std::vector<std::unique_ptr<OperationRecord>> operations_;
  std::vector<WireExtent> extents_{
      {.start_bytes = 0, .length_bytes = 8192, .remote_address = 0x10000, .remote_key = 1}};
  std::unique_ptr<QueuedLaneDriver> driver_;
  alignas(FakeCache::kPart) std::array<std::byte, 4096> buffer_{};
};

TEST_F(RegistrationCacheTest, LongTransferUsesItsOwnMemoryAndEachPartsKey) {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
    lane_->posted.clear();
    // 100 bytes before the end of one part, all of the next, 76 of the third.
    const auto local = std::span{buffer_}.subspan(924, 1200);
    auto& operation = make(opcode, local);
    submit(operation);
    ASSERT_EQ(lane_->posted.size(), 3U);
    EXPECT_EQ(cache_->asked.back().data(), local.data());
    EXPECT_EQ(cache_->asked.back().size(), local.size());
    EXPECT_EQ(lane_->posted[0].request.local, local.data());
    EXPECT_EQ(lane_->posted[0].request.length_bytes, 100U);
    EXPECT_EQ(lane_->posted[1].request.length_bytes, 1024U);
    EXPECT_EQ(lane_->posted[1].request.remote_address, 0x10000U + 100U);
    EXPECT_EQ(lane_->posted[2].request.length_bytes, 76U);
    const std::uint32_t first = lane_->posted[0].request.local_key;
    EXPECT_EQ(lane_->posted[1].request.local_key, first + 1);
    EXPECT_EQ(lane_->posted[2].request.local_key, first + 2);
    EXPECT_EQ(cache_->out, 1) << "as long as the device may touch it";
    lane_->complete(lane_->posted[2].sequence);
    wait_all(1);
    EXPECT_EQ(sink_.take_run().first, &operation);
    EXPECT_TRUE(operation.outcome.ok);
    EXPECT_EQ(cache_->out, 0);
  }
}

TEST_F(RegistrationCacheTest, ShortTransferIsCopied) {
  submit(make(Opcode::kRead, std::span{buffer_}.first(kFromBytes - 1)));
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_TRUE(cache_->asked.empty());
  EXPECT_NE(lane_->posted[0].request.local, buffer_.data());
  lane_->complete(0);
  wait_all(1);
}

TEST_F(RegistrationCacheTest, WhatTheCacheRefusesIsCopied) {
  cache_->empty = true;
  submit(make(Opcode::kRead, std::span{buffer_}.first(kFromBytes)));
  EXPECT_EQ(cache_->asked.size(), 1U);
  ASSERT_EQ(lane_->posted.size(), 1U);
  lane_->posted[0].request.local[7] = std::byte{42};
  lane_->complete(0);
  wait_all(1);
  EXPECT_EQ(buffer_[7], std::byte{42});
}

TEST_F(RegistrationCacheTest, ACallerThatMayNotBlockGetsWhatIsThere) {
  auto& operation = make(Opcode::kRead, std::span{buffer_}.first(kFromBytes));
  driver_->acquire_lease(operation, LaneDriver::Lease::kOld);
  EXPECT_FALSE(operation.lease);
  cache_->known = true;
  driver_->acquire_lease(operation, LaneDriver::Lease::kOld);
  EXPECT_TRUE(operation.lease);
  driver_->release_lease(operation);
  EXPECT_EQ(cache_->out, 0);
}

TEST_F(RegistrationCacheTest, LeaseGoesBackWhenTheLaneBreaks) {
  auto& operation = make(Opcode::kWrite, std::span{buffer_}.first(2048));
  submit(operation);
  EXPECT_EQ(cache_->out, 1);
  driver_->fail(Reason::kPeerGone);
  EXPECT_EQ(cache_->out, 0);
  EXPECT_EQ(sink_.ready(), 1U);
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
}

TEST_F(RegistrationCacheTest, LeaseGoesBackWhenItsOperationIsCancelled) {
  for (int i = 0; i < 8; ++i) submit(make(Opcode::kRead, std::span{buffer_}.first(4096)));
  const int posted = cache_->out;
  auto& last = *operations_.back();
  ASSERT_TRUE(driver_->cancel(last));
  EXPECT_EQ(cache_->out, posted - 1);
  EXPECT_EQ(last.outcome.code, Code::kCancelled);
}

TEST_F(RegistrationCacheTest, PartsUseTheLeaseOfTheirWholeAndLeaveItThere) {
  auto& whole = make(Opcode::kRead, std::span{buffer_}.first(1024));
  EXPECT_TRUE(driver_->acquire_lease(whole, LaneDriver::Lease::kNew));
  auto& part = make(Opcode::kRead, std::span{buffer_}.first(1024));
  part.part = true;
  part.lease = whole.lease;
  OperationList alone;
  alone.append(part);
  driver_->submit(alone);
  lane_->complete(0);
  wait_all(1);
  EXPECT_EQ(lane_->posted[0].request.local, buffer_.data());
  EXPECT_EQ(cache_->out, 1);
  driver_->release_lease(whole);
  EXPECT_EQ(cache_->out, 0);
}

}  // namespace
}  // namespace remora::detail
