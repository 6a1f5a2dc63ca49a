/// A volume beside an array of bytes: the same operations, and the same bytes and values.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "support/pattern.h"
#include "volume_rig.h"

namespace remora::volume::test {
namespace {

using remora::test::Random;
using remora::test::same_bytes;

class VolumeModelTest : public VolumeRig {
 protected:
  void run(const VolumeShape& shape, std::uint64_t seed) {
    const Volume volume = open(make(shape));
    std::vector<std::byte> model(volume.size_bytes());
    Random random{seed};
    for (int step = 0; step < 400; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      one_step(volume, model, random);
      if (HasFatalFailure()) return;
    }
    std::vector<std::byte> all(model.size());
    ASSERT_OK(volume.read(ByteOffset{0}, all));
    EXPECT_TRUE(same_bytes(all, model));
  }

 private:
  static std::pair<std::uint64_t, std::uint64_t> part(std::uint64_t size, Random& random) {
    // Mostly short ones; ends often fall on the ends of units.
    std::uint64_t length = 1 + random.below(random.below(4) == 0 ? size : 9000);
    length = std::min(length, size);
    std::uint64_t at = random.below(size - length + 1);
    if (random.below(3) == 0) at = std::min(at / 4_KiB * 4_KiB, size - length);
    return {at, length};
  }

  static void one_step(const Volume& volume, std::vector<std::byte>& model, Random& random) {
    const auto [at, length] = part(model.size(), random);
    const std::span<std::byte> expected = std::span{model}.subspan(at, length);
    const std::uint64_t word = random.below(model.size() / 8) * 8;
    std::uint64_t before = 0;
    std::memcpy(&before, &model[word], 8);
    switch (random.below(6)) {
      case 0:
      case 1: {
        const std::vector<std::byte> bytes = remora::test::noise(length, random.next());
        ASSERT_OK(volume.write(ByteOffset{at}, bytes));
        std::copy(bytes.begin(), bytes.end(), expected.begin());
        return;
      }
      case 2: {
        ASSERT_OK(volume.write_zeroes(ByteOffset{at}, length));
        std::fill(expected.begin(), expected.end(), std::byte{0});
        return;
      }
      case 3: {
        const std::uint64_t delta = random.next();
        ASSERT_EQ(volume.fetch_add(ByteOffset{word}, delta).value(), before);
        before += delta;
        std::memcpy(&model[word], &before, 8);
        return;
      }
      case 4: {
        const bool swap = random.below(2) == 0;
        const std::uint64_t desired = random.next();
        ASSERT_EQ(volume.compare_swap(ByteOffset{word}, swap ? before : ~before, desired).value(),
                  before);
        if (swap) std::memcpy(&model[word], &desired, 8);
        return;
      }
      default: {
        std::vector<std::byte> bytes(length);
        ASSERT_OK(volume.read(ByteOffset{at}, bytes));
        ASSERT_TRUE(same_bytes(bytes, expected));
      }
    }
  }
};

TEST_F(VolumeModelTest, SynchronousOperationsGiveTheBytesOfAnArray) {
  run({}, 11);
  run({.width = 1, .rows = 3}, 12);
  run({.width = 2, .rows = 1, .unused_bytes = 12_KiB}, 13);
  run({.width = 5, .rows = 2, .stripe_bytes = 8_KiB, .group_bytes = 24_KiB}, 14);
}

/// Rounds of writes to distinct places, all in flight at once, then reads of all of them.
TEST_F(VolumeModelTest, QueuedOperationsGiveTheBytesOfAnArray) {
  const Volume volume = open(make({.unused_bytes = 4_KiB}));
  std::vector<std::byte> model(volume.size_bytes());
  VolumeQueue queue = volume.queue({.depth = 16}).value();
  Random random{21};
  for (int round = 0; round < 60; ++round) {
    const std::vector<std::byte> bytes = remora::test::noise(model.size(), random.next());
    std::vector<std::byte> read(model.size());
    for (const bool writing : {true, false}) {
      std::uint64_t at = 0;
      std::uint64_t done = 0;
      while (at < model.size() || done < model.size()) {
        while (at < model.size() && !queue.full()) {
          const std::uint64_t length =
              std::min<std::uint64_t>(1 + random.below(30'000), model.size() - at);
          const bool zeroes = writing && random.below(8) == 0;
          if (!writing)
            queue.read(ByteOffset{at}, std::span{read}.subspan(at, length), length);
          else if (zeroes)
            queue.write_zeroes(ByteOffset{at}, length, length);
          else
            queue.write(ByteOffset{at}, std::span{bytes}.subspan(at, length), length);
          if (writing)
            for (std::uint64_t i = at; i < at + length; ++i)
              model[i] = zeroes ? std::byte{0} : bytes[i];
          at += length;
        }
        ASSERT_OK(queue.submit());
        for (const VolumeCompletion& completion : queue.wait(1 + random.below(16))) {
          ASSERT_TRUE(completion.ok()) << completion.error();
          done += completion.tag();
        }
      }
    }
    ASSERT_TRUE(same_bytes(read, model)) << "round " << round;
  }
}

/// Threads with synchronous operations of one and of several parts, each in its own bytes.
TEST_F(VolumeModelTest, ThreadsShareAVolume) {
  const Volume volume = open(make());
  constexpr std::uint64_t kThreads = 4;
  const std::uint64_t share = volume.size_bytes() / kThreads;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      Random random{100 + i};
      for (int round = 0; round < 100; ++round) {
        const std::uint64_t length = 1 + random.below(round % 2 == 0 ? 64 : share);
        const ByteOffset at{i * share + random.below(share - length + 1)};
        const std::vector<std::byte> bytes = remora::test::noise(length, random.next());
        std::vector<std::byte> read(length);
        if (!volume.write(at, bytes) || !volume.read(at, read) || read != bytes) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace remora::volume::test
