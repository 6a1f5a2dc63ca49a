// The order of overlapping writes of several NBD connections: apps/nbdkit/write_order.h.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

extern "C" {
#include "nbdkit/write_order.h"
}

namespace remora::test {
namespace {

struct Free {
  void operator()(WriteOrder* order) const noexcept { write_order_free(order); }
};

constexpr std::array<char, 3> kConnections{};  // their addresses stand for connections

OrderedWrite write_of(std::size_t connection, std::uint64_t offset, std::uint64_t length) {
  return {.connection = &kConnections.at(connection),
          .offset = offset,
          .length = length,
          .before = nullptr,
          .after = nullptr};
}

bool give_up() { return false; }

/// How often waiting writes have asked whether to wait on.
std::atomic<int> asked{0};
bool wait_on() {
  ++asked;
  return true;
}
void await_questions(int count) {
  while (asked < count) std::this_thread::yield();
}

class WriteOrderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(order_, nullptr);
    asked = 0;
  }
  [[nodiscard]] bool begin(OrderedWrite& write, bool (*may_wait)() = give_up) {
    return write_order_begin(order_.get(), &write, may_wait);
  }
  void end(OrderedWrite& write) { write_order_end(order_.get(), &write); }

  const std::unique_ptr<WriteOrder, Free> order_{write_order_create()};
};

TEST_F(WriteOrderTest, WritesOfOneConnectionDoNotWait) {
  OrderedWrite first = write_of(0, 0, 4096);
  OrderedWrite second = write_of(0, 0, 4096);
  ASSERT_TRUE(begin(first));
  ASSERT_TRUE(begin(second));
  end(first);
  end(second);
}

TEST_F(WriteOrderTest, NeighboursDoNotWait) {
  OrderedWrite middle = write_of(0, 4096, 4096);
  OrderedWrite before = write_of(1, 0, 4096);
  OrderedWrite behind = write_of(2, 8192, 4096);
  ASSERT_TRUE(begin(middle));
  ASSERT_TRUE(begin(before));
  ASSERT_TRUE(begin(behind));
  end(middle);
  end(behind);
  end(before);
}

TEST_F(WriteOrderTest, AnOverlappingWriteOfAnotherConnectionWaits) {
  OrderedWrite first = write_of(0, 4096, 4096);
  ASSERT_TRUE(begin(first));
  std::atomic<bool> ended{false};
  std::jthread other{[&] {
    OrderedWrite second = write_of(1, 8191, 1);
    EXPECT_TRUE(begin(second, wait_on));
    EXPECT_TRUE(ended);
    end(second);
  }};
  await_questions(2);
  ended = true;
  end(first);
}

TEST_F(WriteOrderTest, AWriteMayGiveUpAndNoOtherWaitsForIt) {
  OrderedWrite first = write_of(0, 0, 4096);
  ASSERT_TRUE(begin(first));
  OrderedWrite given_up = write_of(1, 0, 8192);
  EXPECT_FALSE(begin(given_up));
  OrderedWrite later = write_of(2, 4096, 4096);
  EXPECT_TRUE(begin(later));
  end(later);
  end(first);
}

TEST_F(WriteOrderTest, AWriteWaitsForAnEarlierOneThatWaits) {
  OrderedWrite first = write_of(0, 0, 4096);
  ASSERT_TRUE(begin(first));
  std::atomic<bool> second_has_ended{false};
  std::jthread second_thread{[&] {
    OrderedWrite second = write_of(1, 0, 8192);
    EXPECT_TRUE(begin(second, wait_on));
    second_has_ended = true;
    end(second);
  }};
  await_questions(1);  // the second one is in the order
  std::jthread third_thread{[&] {
    OrderedWrite third = write_of(2, 4096, 4096);
    EXPECT_TRUE(begin(third, wait_on));
    EXPECT_TRUE(second_has_ended);
    end(third);
  }};
  await_questions(asked + 3);
  end(first);
}

TEST_F(WriteOrderTest, WritesToOneBlockExcludeEachOther) {
  constexpr int kRounds = 500;
  int writes = 0;  // not atomic: the order guards it
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kConnections.size(); ++i)
      threads.emplace_back([&, i] {
        for (int round = 0; round < kRounds; ++round) {
          OrderedWrite write = write_of(i, 0, 4096);
          EXPECT_TRUE(begin(write, wait_on));
          ++writes;
          end(write);
        }
      });
  }
  EXPECT_EQ(writes, kRounds * static_cast<int>(kConnections.size()));
}

}  // namespace
}  // namespace remora::test
