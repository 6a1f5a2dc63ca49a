#include "client/datapath/batch_order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "client/engine/engine_core.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::FakeLane;
using transport::Opcode;

constexpr std::uint64_t kOrderRemote = 0x7f00'0000'0000;

/// Says what a batch's order depends on.
class OrderedLane final : public LaneDriver {
 public:
  explicit OrderedLane(bool needs_keys = true,
                       NeighbourGain gain = {.max_operations = kMaxQueueDepth})
      : needs_keys_{needs_keys}, gain_{gain} {}
  void submit(OperationList) noexcept override {}
  void wait(CompletionSink&, std::size_t, DeadlineSource) noexcept override {}
  void run(OperationRecord&) noexcept override {}
  void progress_and_arm(CompletionSink&, DeadlineSource) noexcept override {}
  bool cancel(OperationRecord&) noexcept override { return false; }
  void fail(Reason) noexcept override {}
  [[nodiscard]] bool needs_keys() const noexcept override { return needs_keys_; }
  [[nodiscard]] NeighbourGain neighbour_gain() const noexcept override { return gain_; }
  [[nodiscard]] std::uint32_t request_bytes_max() const noexcept override { return 1U << 20U; }

 private:
  bool needs_keys_;
  NeighbourGain gain_;
};

class BatchOrderTest : public ::testing::Test {
 protected:
  using Operations = std::vector<OperationRecord*>;

  /// A transfer between `at_bytes` of the remote and of the local memory.
  OperationRecord* make(std::uint64_t at_bytes, std::uint32_t length_bytes = 4096,
                        Opcode opcode = Opcode::kRead) {
    auto& operation = *operations_.emplace_back(std::make_unique<OperationRecord>());
    operation.request = {.local = local(at_bytes),
                         .length_bytes = length_bytes,
                         .remote_address = kOrderRemote + at_bytes,
                         .remote_key = 1,
                         .opcode = opcode};
    operation.length_bytes = length_bytes;
    operation.memory = &memory_;
    operation.whole = true;
    return &operation;
  }
  Operations make_blocks(std::size_t count, std::uint32_t length_bytes = 4096,
                         Opcode opcode = Opcode::kRead) {
    Operations made;
    for (std::size_t i = 0; i < count; ++i)
      made.push_back(make(i * length_bytes, length_bytes, opcode));
    return made;
  }
  void shuffle(Operations& operations) {
    std::shuffle(operations.begin(), operations.end(), random_);
  }
  /// Nothing is read or written there.
  static std::byte* local(std::uint64_t at_bytes) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): there is no memory
    return reinterpret_cast<std::byte*>(std::uintptr_t{0x1000'0000'0000} + at_bytes);
  }

  static Operations arrange(const Operations& batch, std::size_t depth = 4096,
                            const OrderedLane& lane = OrderedLane{}) {
    BatchOrder order{lane, depth};
    return arrange(order, batch);
  }
  static Operations arrange(BatchOrder& order, const Operations& batch) {
    OperationList list;
    for (OperationRecord* operation : batch) list.append(*operation);
    order.arrange(list);
    EXPECT_EQ(list.count, batch.size());
    Operations arranged;
    for (OperationRecord* at = list.first; at != nullptr; at = at->next) {
      arranged.push_back(at);
    }
    EXPECT_EQ(list.last, arranged.back());
    return arranged;
  }
  static bool same_operations(Operations one, Operations other) {
    std::sort(one.begin(), one.end());
    std::sort(other.begin(), other.end());
    return one == other;
  }
  /// How many would be posted if all that can be joined were.
  static std::size_t runs(const Operations& operations) {
    std::size_t found = 1;
    for (std::size_t i = 1; i < operations.size(); ++i) {
      const transport::WorkRequest& last = operations[i - 1]->request;
      const transport::WorkRequest& next = operations[i]->request;
      const bool joined = next.remote_address == last.remote_address + last.length_bytes &&
                          next.local == last.local + last.length_bytes &&
                          next.opcode == last.opcode && next.remote_key == last.remote_key &&
                          operations[i]->memory == operations[i - 1]->memory;
      if (!joined) ++found;
    }
    return found;
  }

  std::mt19937_64 random_{7};
  LocalMemory memory_{{}};
  LocalMemory other_memory_{{}};
  std::vector<std::unique_ptr<OperationRecord>> operations_;
};

TEST_F(BatchOrderTest, ShuffledNeighboursFollowEachOther) {
  for (const std::size_t count : {32U, 33U, 64U, 255U, 1000U, 4096U}) {
    const Operations blocks = make_blocks(count);
    Operations batch = blocks;
    shuffle(batch);
    EXPECT_EQ(arrange(batch), blocks) << count;
  }
}

/// The first three operations tell it from a batch whose distances repeat.
TEST_F(BatchOrderTest, BatchOfManyDistancesIsLeftAsItIs) {
  Operations batch = make_blocks(64);
  shuffle(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i]->request.local = local(i * 8192);
  // Not by chance as far as the first one.
  batch[1]->request.local = local(std::uint64_t{1} << 30U);
  batch[2]->request.local = local(std::uint64_t{1} << 31U);
  EXPECT_EQ(arrange(batch), batch);
  for (std::size_t alike = 0; alike < 3; ++alike) {
    const Operations blocks = make_blocks(64);
    Operations other = blocks;
    other[alike] = make(blocks.size() * 4096);
    other[alike]->request.local = local(std::uint64_t{1} << 30U);
    std::shuffle(other.begin() + 3, other.end(), random_);
    const Operations arranged = arrange(other);
    EXPECT_TRUE(same_operations(arranged, other)) << alike;
    EXPECT_LE(runs(arranged), 4U) << "two distances are few: " << alike;
  }
}

TEST_F(BatchOrderTest, LongestBatchIsSorted) {
  const Operations blocks = make_blocks(kMaxQueueDepth);
  Operations batch = blocks;
  shuffle(batch);
  EXPECT_EQ(arrange(batch, kMaxQueueDepth), blocks);
}

TEST_F(BatchOrderTest, OneOrderServesManyBatches) {
  const OrderedLane lane;
  BatchOrder order{lane, 512};
  for (std::uint32_t size = 1; size <= 1024; size *= 4) {
    const Operations blocks = make_blocks(128 + size % 100, size);
    Operations batch = blocks;
    shuffle(batch);
    EXPECT_EQ(arrange(order, batch), blocks) << size;
  }
}

TEST_F(BatchOrderTest, HalfOfTheBlocksOfAWindowAreSorted) {
  Operations blocks = make_blocks(512);
  for (std::size_t i = 0; i < 256; ++i)
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random_() % blocks.size()));
  Operations batch = blocks;
  shuffle(batch);
  EXPECT_EQ(arrange(batch), blocks);
}

TEST_F(BatchOrderTest, LengthsOfAllKindsAreSorted) {
  Operations blocks;
  std::uint64_t at = 3;
  for (std::uint32_t i = 0; i < 300; ++i) {
    blocks.push_back(make(at, 1 + i * 37 % 1000));
    at += blocks.back()->length_bytes;
  }
  Operations batch = blocks;
  shuffle(batch);
  EXPECT_EQ(arrange(batch), blocks);
}

TEST_F(BatchOrderTest, ShortBatchIsLeftAlone) {
  Operations batch = make_blocks(BatchOrder::kFromOperations - 1);
  shuffle(batch);
  EXPECT_EQ(arrange(batch), batch);
}

TEST_F(BatchOrderTest, BatchLongerThanItsDepthIsLeftAlone) {
  Operations batch = make_blocks(65);
  shuffle(batch);
  EXPECT_EQ(arrange(batch, 64), batch);
}

TEST_F(BatchOrderTest, BatchThatTheLaneGainsNothingByIsLeftAlone) {
  Operations batch = make_blocks(64);
  shuffle(batch);
  EXPECT_EQ(arrange(batch, 64, OrderedLane{true, {}}), batch);
  EXPECT_EQ(arrange(batch, 64, OrderedLane{true, {.max_operations = 63}}), batch);
  const OrderedLane for_long{true, {.max_operations = 64, .length_bytes_least = 4097}};
  EXPECT_EQ(arrange(batch, 64, for_long), batch);
  const OrderedLane for_these{true, {.max_operations = 64, .length_bytes_least = 4096}};
  EXPECT_EQ(runs(arrange(batch, 64, for_these)), 1U);
}

TEST_F(BatchOrderTest, BlocksFarApartAreLeftAlone) {
  for (const std::size_t count : {64U, 4096U}) {
    Operations batch;
    for (std::size_t i = 0; i < count; ++i) batch.push_back(make(random_() % (1U << 18U) * 4096));
    EXPECT_EQ(arrange(batch), batch) << count;
  }
}

TEST_F(BatchOrderTest, BlocksFarApartBehindSomeNeighboursAreLeftAlone) {
  Operations batch = make_blocks(17);
  shuffle(batch);
  for (std::size_t i = 0; i < 100; ++i) batch.push_back(make(random_() % (1U << 28U) * 4096));
  EXPECT_EQ(arrange(batch), batch);
}

TEST_F(BatchOrderTest, NeighboursOnTheRemoteSideOnlyAreLeftAlone) {
  Operations batch = make_blocks(256);
  shuffle(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i]->request.local = local(i * 4096);
  EXPECT_EQ(arrange(batch), batch);
}

TEST_F(BatchOrderTest, BatchInOrderIsLeftAlone) {
  const Operations blocks = make_blocks(256);
  EXPECT_EQ(arrange(blocks), blocks);
  // With a gap after each.
  Operations apart;
  for (std::size_t i = 0; i < 256; ++i) apart.push_back(make(i * 8192));
  EXPECT_EQ(arrange(apart), apart);
}

TEST_F(BatchOrderTest, TwoScansInTurnAreTwoRuns) {
  Operations batch;
  for (std::size_t i = 0; i < 128; ++i) {
    batch.push_back(make(i * 4096));
    batch.push_back(make(1_MiB + i * 4096));
  }
  const Operations arranged = arrange(batch);
  EXPECT_TRUE(same_operations(arranged, batch));
  EXPECT_EQ(runs(arranged), 2U);
}

TEST_F(BatchOrderTest, ReadsAndWritesOfOnePlaceAreApart) {
  Operations batch = make_blocks(64);
  const Operations writes = make_blocks(64, 4096, Opcode::kWrite);
  batch.insert(batch.end(), writes.begin(), writes.end());
  shuffle(batch);
  const Operations arranged = arrange(batch);
  EXPECT_TRUE(same_operations(arranged, batch));
  EXPECT_EQ(runs(arranged), 2U);
}

TEST_F(BatchOrderTest, KeysAndMemoriesOfOneBatchAreApart) {
  Operations batch = make_blocks(96);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    // Addresses of another extent may lie anywhere, also among these.
    if (i / 32 == 1) batch[i]->request.remote_key = 2;
    if (i / 32 == 2) batch[i]->memory = &other_memory_;
  }
  shuffle(batch);
  const Operations arranged = arrange(batch);
  EXPECT_TRUE(same_operations(arranged, batch));
  EXPECT_EQ(runs(arranged), 3U);
}

TEST_F(BatchOrderTest, MoreMemoriesThanAreToldApartAreLeftAlone) {
  std::vector<std::unique_ptr<LocalMemory>> memories;
  Operations batch = make_blocks(320);
  for (std::size_t i = 0; i < 10; ++i)
    memories.push_back(std::make_unique<LocalMemory>(std::span<std::byte>{}));
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i]->memory = memories[i % 10].get();
  EXPECT_EQ(arrange(batch), batch);
}

TEST_F(BatchOrderTest, WhatCannotBeJoinedFollowsInItsOrder) {
  const Operations blocks = make_blocks(128);
  Operations others;
  for (std::uint64_t i = 0; i < 6; ++i) {
    others.push_back(make(8 * i, 8, Opcode::kFetchAdd));
    others.push_back(make(0, 1, Opcode::kFlush));
    others.push_back(make(512 * i, 512, Opcode::kWrite));
    others.back()->whole = false;
    others.push_back(make(16 * i, 16, Opcode::kWrite));
    others.back()->memory = nullptr;  // goes inline
    others.push_back(make(65536 * i, 65536));
    others.push_back(make((std::uint64_t{1} << 40U) * (7 - i), 64, Opcode::kWrite));  // far apart
  }
  Operations batch = blocks;
  shuffle(batch);
  for (std::size_t i = 0; i < others.size(); ++i)
    batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(i * 3), others[i]);
  Operations wanted = blocks;
  wanted.insert(wanted.end(), others.begin(), others.end());
  EXPECT_EQ(arrange(batch), wanted);
}

TEST_F(BatchOrderTest, MemoryWithoutKeysIsSortedWhereNoneAreNeeded) {
  const Operations blocks = make_blocks(64);
  for (OperationRecord* block : blocks) block->memory = nullptr;
  Operations batch = blocks;
  shuffle(batch);
  EXPECT_EQ(arrange(batch), batch) << "nothing of it could be joined";
  EXPECT_EQ(arrange(batch, 64, OrderedLane{false}), blocks);
}

TEST_F(BatchOrderTest, OperationsOfOneAddressAllStayInTheirOrder) {
  Operations blocks = make_blocks(64);
  Operations batch = blocks;
  shuffle(batch);
  const Operations again = make_blocks(64);
  batch.insert(batch.end(), again.begin(), again.end());
  Operations wanted;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    wanted.push_back(blocks[i]);
    wanted.push_back(again[i]);
  }
  EXPECT_EQ(arrange(batch), wanted);
}

TEST_F(BatchOrderTest, OneAddressForAllIsLeftAlone) {
  Operations batch;
  for (int i = 0; i < 64; ++i) batch.push_back(make(4096));
  EXPECT_EQ(arrange(batch), batch);
}

TEST_F(BatchOrderTest, AddressesThatNoMemoryHasLoseNothing) {
  Operations batch = make_blocks(256);
  shuffle(batch);
  for (std::size_t i = 0; i < batch.size(); ++i)
    batch[i]->request.remote_address =
        std::numeric_limits<std::uint64_t>::max() - (i * 7919 % 256 << (i % 3 * 24));
  EXPECT_TRUE(same_operations(arrange(batch), batch));
  for (OperationRecord* operation : batch) {
    operation->request.remote_address = std::uint64_t{0xff'ffff'ffff'f000} + random_() % 8192;
    operation->request.local = local(operation->request.remote_address);
  }
  EXPECT_TRUE(same_operations(arrange(batch), batch));
}

TEST_F(BatchOrderTest, EmptyOperationsLoseNothing) {
  Operations batch;
  for (std::uint64_t i = 0; i < 64; ++i) batch.push_back(make(i * 37 % 64, 0));
  EXPECT_TRUE(same_operations(arrange(batch), batch));
}

/// Completes what is posted at once.
class InstantLane final : public FakeLane {
 public:
  InstantLane() : FakeLane{1024, 1U << 20U} {}
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    const auto outcome = FakeLane::post(chain, first_sequence);
    complete(first_sequence + outcome.taken - 1);
    return outcome;
  }
};

/// A queue over a lane that remembers what was posted.
class BatchOfAQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_ = EngineCore::create({}).value();
    auto lane = std::make_unique<InstantLane>();
    lane_ = lane.get();
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    offer.lane = std::move(lane);
    region_.emplace(transport::open_fake_region(engine_, std::move(offer)));
    blocks_.resize(256);
    std::iota(blocks_.begin(), blocks_.end(), std::uint64_t{0});
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937_64{3});
  }
  void read(Queue& queue, std::uint64_t from, std::uint64_t into, std::uint64_t tag) {
    ASSERT_TRUE(
        queue.read(ByteOffset{from * 4096}, std::span{local_}.subspan(into * 4096, 4096), tag));
  }
  /// All must be ok, each once.
  static void finish(Queue& queue) {
    const std::size_t count = queue.size();
    ASSERT_TRUE(queue.submit());
    std::vector<int> seen(count);
    for (const Completion& completion : queue.wait(count)) {
      EXPECT_TRUE(completion.ok());
      ++seen.at(completion.tag());
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(count));
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(16_MiB);
  std::vector<std::byte> local_ = std::vector<std::byte>(16_MiB);
  std::shared_ptr<EngineCore> engine_;
  InstantLane* lane_ = nullptr;
  std::optional<Region> region_;
  std::vector<std::uint64_t> blocks_;
};

TEST_F(BatchOfAQueueTest, ShuffledNeighboursArePostedAsFewRequests) {
  Queue queue = region_->queue({.depth = 256}).value();
  for (std::size_t i = 0; i < 256; ++i) read(queue, blocks_[i], blocks_[i], i);
  finish(queue);
  ASSERT_EQ(lane_->posted.size(), 256U * 4096 / kMaxJoinedBytes);
  for (std::size_t i = 0; i < lane_->posted.size(); ++i) {
    const transport::WorkRequest& request = lane_->posted[i].request;
    EXPECT_EQ(request.length_bytes, kMaxJoinedBytes);
    EXPECT_EQ(request.local, local_.data() + i * kMaxJoinedBytes);
    EXPECT_EQ(request.remote_address,
              reinterpret_cast<std::uintptr_t>(memory_.data()) + i * kMaxJoinedBytes);
  }
  EXPECT_EQ(lane_->doorbells, 1);
}

TEST_F(BatchOfAQueueTest, RandomBlocksArePostedAsTheyCame) {
  Queue queue = region_->queue({.depth = 256}).value();
  for (std::size_t i = 0; i < 256; ++i) read(queue, blocks_[i] * 16, i, i);
  finish(queue);
  ASSERT_EQ(lane_->posted.size(), 256U);
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_EQ(lane_->posted[i].request.local, local_.data() + i * 4096);
}

TEST_F(BatchOfAQueueTest, EachSideOfABarrierIsSortedByItself) {
  Queue queue = region_->queue({.depth = 512}).value();
  for (std::size_t i = 0; i < 256; ++i)
    ASSERT_TRUE(queue.write(ByteOffset{blocks_[i] * 4096},
                            std::span{local_}.subspan(blocks_[i] * 4096, 4096), i));
  queue.barrier();
  for (std::size_t i = 0; i < 256; ++i) read(queue, blocks_[i], blocks_[i], 256 + i);
  finish(queue);
  ASSERT_EQ(lane_->posted.size(), 32U);
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(lane_->posted[i].request.opcode, i < 16 ? Opcode::kWrite : Opcode::kRead);
}

TEST_F(BatchOfAQueueTest, AtomicsAmongShuffledNeighboursAreRequestsOfTheirOwn) {
  Queue queue = region_->queue({.depth = 64}).value();
  for (std::size_t i = 0, place = 0; i < 256; ++i) {
    if (blocks_[i] >= 48) continue;
    read(queue, blocks_[i], blocks_[i], place++);
    if (place % 4 != 3) continue;
    ASSERT_TRUE(queue.fetch_add(ByteOffset{8 * place}, 1, place));
    ++place;
  }
  ASSERT_TRUE(queue.full());
  finish(queue);
  EXPECT_EQ(lane_->posted.size(), 3U + 16U);
}

}  // namespace
}  // namespace remora::detail
