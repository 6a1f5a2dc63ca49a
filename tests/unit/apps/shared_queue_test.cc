// The queue that the threads of an NBD connection share: apps/nbdkit/shared_queue.h.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora_c.h>

#include "support/c_error.h"
#include "support/runtime_dir.h"

extern "C" {
#include "nbdkit/shared_queue.h"
}

namespace remora::test {
namespace {

constexpr const char* kServer =
    "listen: {address: 127.0.0.1, port: 0}\n"
    "transports: {rdma: off}\n"
    "pool: {size: 4MiB, huge_pages: never}\n"
    "regions:\n  - {name: disk, size: 1MiB, shm: true}\n"
    "auth: none\n"
    "limits: {drain_timeout: 0s}\n";
constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t kRegionBytes = std::uint64_t{1} << 20U;

class SharedQueueTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    remora_error error = no_error();
    ASSERT_EQ(remora_server_start_text(kServer, nullptr, &server_, nullptr, &error), REMORA_OK)
        << error.message;
    remora_engine_options options;
    ASSERT_EQ(remora_engine_options_init(&options, sizeof(options)), REMORA_OK);
    options.reconnect_for_ns = 0;
    ASSERT_EQ(remora_engine_open(&options, &engine_, &error), REMORA_OK) << error.message;
    const std::string uri = "remora://127.0.0.1:" + std::to_string(remora_server_port(server_)) +
                            "/disk?transport=" + GetParam();
    MemoryOptions wanted{};
    wanted.uri = uri.c_str();
    wanted.rights = REMORA_RIGHT_READ | REMORA_RIGHT_WRITE;
    ASSERT_EQ(memory_open(&memory_, engine_, &wanted, &error), REMORA_OK) << error.message;
  }
  void TearDown() override {
    shared_queue_free(queue_);
    memory_close(&memory_);
    remora_engine_free(engine_);
    remora_server_free(server_);
  }
  void make_queue(std::size_t depth) {
    queue_ = shared_queue_create(&memory_, depth);
    ASSERT_NE(queue_, nullptr);
  }

  const RuntimeDir folder_;
  remora_server* server_ = nullptr;
  remora_engine* engine_ = nullptr;
  Memory memory_{};
  SharedQueue* queue_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Transports, SharedQueueTest, testing::Values("tcp", "shm"),
                         [](const auto& tested) { return std::string{tested.param}; });

using Bytes = std::array<std::uint8_t, kBlock>;

/// Writes and reads the blocks of `thread`, each round with other bytes. The number of faults.
std::size_t work(SharedQueue* queue, std::size_t thread) {
  constexpr std::size_t kRounds = 200;
  constexpr std::size_t kBlocks = 4;
  std::size_t faults = 0;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::uint64_t at = (thread * kBlocks + round % kBlocks) * kBlock;
    Bytes written;
    written.fill(static_cast<std::uint8_t>(thread * 16 + round));
    Bytes found{};
    remora_error error = no_error();
    if (shared_queue_write(queue, at, written.data(), kBlock, &error) != REMORA_OK) ++faults;
    if (shared_queue_read(queue, at, found.data(), kBlock, &error) != REMORA_OK) ++faults;
    if (found != written) ++faults;
  }
  return faults;
}

TEST_P(SharedQueueTest, OneThreadReadsWhatItHasWritten) {
  make_queue(1);
  EXPECT_EQ(work(queue_, 0), 0U);
}

TEST_P(SharedQueueTest, MoreThreadsThanPlacesReadWhatTheyHaveWritten) {
  make_queue(4);
  std::atomic<std::size_t> faults{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 16; ++i)
      threads.emplace_back([this, i, &faults] { faults += work(queue_, i); });
  }
  EXPECT_EQ(faults.load(), 0U);
}

TEST_P(SharedQueueTest, ARequestThatFailsHasItsOwnErrorAndTheOthersNone) {
  make_queue(8);
  std::atomic<std::size_t> faults{0};
  std::atomic<std::size_t> refused{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
      threads.emplace_back([this, i, &faults] { faults += work(queue_, i); });
      threads.emplace_back([this, &refused] {
        for (int round = 0; round < 50; ++round) {
          Bytes found{};
          remora_error error = no_error();
          const int code = shared_queue_read(queue_, kRegionBytes, found.data(), kBlock, &error);
          if (code == REMORA_OUT_OF_RANGE && error.code == code && error.message[0] != '\0')
            ++refused;
        }
      });
    }
  }
  EXPECT_EQ(faults.load(), 0U);
  EXPECT_EQ(refused.load(), 200U);
}

TEST_P(SharedQueueTest, AllThreadsReturnWhenTheServerEnds) {
  make_queue(64);
  std::vector<std::jthread> threads;
  std::atomic<int> begun{0};
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([this, i, &begun] {
      Bytes bytes{};
      remora_error error = no_error();
      bool counted = false;
      while (shared_queue_write(queue_, i * kBlock, bytes.data(), kBlock, &error) == REMORA_OK)
        if (!std::exchange(counted, true)) ++begun;
    });
  while (begun < 8) std::this_thread::yield();
  remora_server_free(std::exchange(server_, nullptr));
  threads.clear();  // joins them
  remora_error error = no_error();
  Bytes bytes{};
  EXPECT_NE(shared_queue_read(queue_, 0, bytes.data(), kBlock, &error), REMORA_OK);
}

TEST_P(SharedQueueTest, ADepthThatNoQueueHasMakesNone) {
  EXPECT_EQ(shared_queue_create(&memory_, std::size_t{1} << 20U), nullptr);
}

}  // namespace
}  // namespace remora::test
