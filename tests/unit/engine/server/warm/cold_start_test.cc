/// A server that cannot take over what the process before has left: the memory is new, and clients
/// are told.

#include <array>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <string_view>
#include <unistd.h>

#include <remora/remora.h>

#include "base/unique_fd.h"
#include "server/warm/sealed_record.h"
#include "support/eventually.h"
#include "unit/engine/server/warm/warm_restart_fixture.h"

namespace remora::detail {
namespace {

/// The memory is new: clients are told, and the reason is there to read.
class ColdStartTest : public WarmRestartTest {
 protected:
  /// What is changed between the two processes.
  void expect_new_memory(const std::function<void()>& change, std::string_view reason) {
    start();
    create("a");
    const std::uint64_t memory = memory_id();
    Told told;
    const Engine client = engine(told);
    const Region region = client.open_region(uri("a"), Rights::kAll).value();
    ASSERT_TRUE(write_word(region, ByteOffset{0}, 1));
    hand_over();
    change();
    start();
    ASSERT_TRUE(test::eventually([&] { return told.stale == 1; }));
    EXPECT_EQ(server_->regions().size(), 0U);
    create("a");
    EXPECT_NE(memory_id(), memory);
    EXPECT_TRUE(status_has(R"("taken_over":false)"));
    EXPECT_TRUE(status_has(reason)) << server_->status_json();
    EXPECT_TRUE(status_has(R"("ready":true)")) << "the next restart is warm";
  }
};

TEST_P(ColdStartTest, CatalogIsDamaged) {
  expect_new_memory(
      [&] {
        const int fd = store_->fd("remora-catalog");
        // Both slots: one of them is the committed one.
        for (std::uint64_t slot = 0; slot < 2; ++slot) {
          const auto at =
              static_cast<off_t>(SealedRecord::kFirstSlot + slot * SealedRecord::kSlotBytes +
                                 SealedRecord::kHeaderBytes + 3);
          std::byte byte{};
          ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
          byte ^= std::byte{1};
          ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
        }
      },
      "CRC");
}

TEST_P(ColdStartTest, SessionsAreMissing) {
  expect_new_memory([&] { store_->remove("remora-sessions"); }, "remora-sessions");
}

TEST_P(ColdStartTest, PoolIsMissing) {
  expect_new_memory([&] { store_->remove("remora-pool"); }, "remora-pool");
}

TEST_P(ColdStartTest, PoolHasAnotherSize) {
  expect_new_memory([&] { config_.pool.size_bytes *= 2; }, "pool.size");
}

TEST_P(ColdStartTest, MemoryOfARegionIsMissing) {
  if (!shm()) GTEST_SKIP() << "it lies in the pool";
  expect_new_memory([&] { store_->remove("remora-region-1"); }, "remora-region-1");
}

/// A client reads what it has mapped until it finds that its connection has ended: never zeros.
TEST_P(ColdStartTest, MemoryThatClientsHaveMappedKeepsItsBytes) {
  if (!shm()) GTEST_SKIP() << "no client maps the pool";
  start();
  create("a");
  ASSERT_TRUE(server_->view("a")->write(ByteOffset{0}, word(6)));
  hand_over();
  const UniqueFd mapped{::fcntl(store_->fd("remora-region-1"), F_DUPFD_CLOEXEC, 3)};
  store_->remove("remora-sessions");
  start();
  EXPECT_TRUE(status_has(R"("taken_over":false)"));
  std::array<std::byte, 8> bytes{};
  ASSERT_EQ(::pread(mapped.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(bytes, word(6));
}

INSTANTIATE_TEST_SUITE_P(Warm, ColdStartTest, testing::Values("tcp", "shm"));

}  // namespace
}  // namespace remora::detail
