// The checksum beside a transfer: pieces in any order, checkpoints, and the end of a transfer that
// fails.

#include "cli/checksum_thread.h"

#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <thread>

namespace remora::apps {
namespace {

std::span<const std::byte> piece_of(std::string_view text) {
  return std::as_bytes(std::span{text});
}

std::string sha256_of(std::string_view text) {
  Checksum sum = Checksum::make(ChecksumKind::kSha256).value();
  sum.update(piece_of(text));
  return sum.digest();
}

std::unique_ptr<ChecksumThread> started(std::uint64_t first = 0,
                                        ChecksumThread::Checkpoints checkpoints = {},
                                        std::string_view before = {}) {
  Checksum sum = Checksum::make(ChecksumKind::kSha256).value();
  sum.update(piece_of(before));
  return ChecksumThread::start(std::move(sum), first, std::move(checkpoints)).value();
}

TEST(ChecksumThread, PiecesInAnyOrderAreSummedByTheirPlaces) {
  const auto thread = started();
  thread->add(4, piece_of("ef"));
  thread->add(2, piece_of("cd"));
  thread->add(0, piece_of("ab"));
  ASSERT_TRUE(thread->await(6));
  EXPECT_EQ(thread->digest(), sha256_of("abcdef"));
}

TEST(ChecksumThread, ZeroesAreSummed) {
  const auto thread = started();
  thread->add(0, piece_of("a"));
  thread->add_zeroes(1, 100'000);
  thread->add(100'001, piece_of("b"));
  ASSERT_TRUE(thread->await(100'002));
  EXPECT_EQ(thread->digest(), sha256_of("a" + std::string(100'000, '\0') + "b"));
}

TEST(ChecksumThread, SumGoesOnFromWhatWasBefore) {
  const auto thread = started(2, {}, "ab");
  thread->add(2, piece_of("cd"));
  ASSERT_TRUE(thread->await(4));
  EXPECT_EQ(thread->digest(), sha256_of("abcd"));
}

TEST(ChecksumThread, NothingIsAwaitedOfAnEmptyTransfer) {
  const auto thread = started();
  EXPECT_TRUE(thread->await(0));
  EXPECT_EQ(thread->digest(), sha256_of(""));
}

TEST(ChecksumThread, CheckpointsHaveTheDigestOfAllBeforeThem) {
  std::map<std::uint64_t, std::string> reached;
  {
    const auto thread = started(
        4,
        {.step_bytes = 4,
         .reached = [&](std::uint64_t end, const std::string& digest) { reached[end] = digest; }},
        "abcd");
    thread->add(6, piece_of("gh"));
    thread->add(4, piece_of("ef"));
    thread->add(8, piece_of("ij"));
    ASSERT_TRUE(thread->await(10));
  }
  const std::map<std::uint64_t, std::string> wanted{{8, sha256_of("abcdefgh")}};
  EXPECT_EQ(reached, wanted);
}

TEST(ChecksumThread, StopEndsAWaitForAMissingPiece) {
  const auto thread = started();
  thread->add(2, piece_of("cd"));
  std::thread waiter{[&] { EXPECT_FALSE(thread->await(4)); }};
  thread->stop();
  waiter.join();
  thread->add(0, piece_of("ab"));
  thread->halt();
  EXPECT_FALSE(thread->await(4));
}

}  // namespace
}  // namespace remora::apps
