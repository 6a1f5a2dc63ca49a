/// Answers of one step, and the memory that they are still sent from.

#include "transport/tcp/outgoing_answers.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "unit/engine/transport/tcp/lane_fixture.h"

namespace remora::transport::tcp {
namespace {

constexpr std::size_t kAnswerBytes = AnswerHeader::kWireBytes;
constexpr std::uint32_t kLarge = 4096;

TEST(TcpOutgoingAnswers, LargeReadIsSentFromItsMemory) {
  const LaneEnds ends;
  const std::vector<std::byte> memory = pattern(kLarge, 1);
  LaneBuffers buffers;
  OutgoingAnswers outgoing{false};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  ASSERT_TRUE(outgoing.goes_straight(kLarge));
  const RequestHeader read{
      .opcode = Opcode::kRead, .length_bytes = kLarge, .key = 3, .sequence = 9};
  outgoing.answer_read(read, memory.data());
  EXPECT_TRUE(outgoing.pending());
  bool moved = false;
  EXPECT_EQ(outgoing.flush(ends.a.get(), kMaxStepBytes, moved), OutgoingAnswers::Sent::kAll);
  EXPECT_TRUE(moved);
  EXPECT_FALSE(outgoing.pending());
  std::vector<std::byte> got(kAnswerBytes + kLarge);
  ASSERT_EQ(::recv(ends.b.get(), got.data(), got.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(got.size()));
  const auto answer =
      AnswerHeader::from_wire(std::span<const std::byte, kAnswerBytes>{got.data(), kAnswerBytes});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->sequence, 9U);
  EXPECT_EQ(answer->length_bytes, kLarge);
  EXPECT_EQ(std::memcmp(got.data() + kAnswerBytes, memory.data(), kLarge), 0);
}

TEST(TcpOutgoingAnswers, MemoryOfAReadIsInUseUntilItHasLeft) {
  const LaneEnds ends;
  const std::vector<std::byte> memory = pattern(3 * kLarge, 2);
  LaneBuffers buffers;
  OutgoingAnswers outgoing{false};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  outgoing.answer_read({.opcode = Opcode::kRead, .length_bytes = kLarge, .key = 3},
                       memory.data() + kLarge);
  EXPECT_TRUE(outgoing.reads_by(3));
  EXPECT_FALSE(outgoing.reads_by(4));
  EXPECT_FALSE(outgoing.overlaps(memory.data(), kLarge)) << "before it";
  EXPECT_TRUE(outgoing.overlaps(memory.data(), kLarge + 1));
  EXPECT_FALSE(outgoing.overlaps(memory.data() + 2 * kLarge, kLarge)) << "behind it";
  bool moved = false;
  EXPECT_EQ(outgoing.flush(ends.a.get(), kMaxStepBytes, moved), OutgoingAnswers::Sent::kAll);
  EXPECT_FALSE(outgoing.reads_by(3));
  EXPECT_FALSE(outgoing.overlaps(memory.data(), 3 * kLarge));
}

TEST(TcpOutgoingAnswers, DroppedAnswersAreNotSent) {
  const LaneEnds ends;
  const std::vector<std::byte> memory = pattern(kLarge, 3);
  LaneBuffers buffers;
  OutgoingAnswers outgoing{false};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  outgoing.answer_read({.opcode = Opcode::kRead, .length_bytes = kLarge, .key = 3}, memory.data());
  outgoing.drop();
  EXPECT_FALSE(outgoing.pending());
  EXPECT_FALSE(outgoing.reads_by(3));
}

TEST(TcpOutgoingAnswers, WithPayloadCrcNothingGoesStraight) {
  LaneBuffers buffers;
  OutgoingAnswers outgoing{true};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  EXPECT_FALSE(outgoing.goes_straight(kMaxTransferBytes));
  EXPECT_TRUE(outgoing.has_room(kMaxTransferBytes));
}

TEST(TcpOutgoingAnswers, LostConnectionIsToldAndMovesNothing) {
  LaneEnds ends;
  ends.b.reset();
  LaneBuffers buffers;
  OutgoingAnswers outgoing{false};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  outgoing.answer({.opcode = Opcode::kWrite, .length_bytes = 8});
  bool moved = false;
  EXPECT_EQ(outgoing.flush(ends.a.get(), kMaxStepBytes, moved), OutgoingAnswers::Sent::kFailed);
  EXPECT_FALSE(moved);
}

TEST(TcpOutgoingAnswers, OneSendHasAsManyBytesAsTheStepMaySend) {
  const LaneEnds ends;
  const std::vector<std::byte> memory = pattern(3 * kLarge, 4);
  LaneBuffers buffers;
  OutgoingAnswers outgoing{false};
  ASSERT_TRUE(outgoing.begin_step(buffers));
  outgoing.answer_read({.opcode = Opcode::kRead, .length_bytes = 3 * kLarge, .key = 3},
                       memory.data());
  const auto sent_by = [&](std::uint64_t bytes_max) {
    bool moved = false;
    (void)outgoing.flush(ends.a.get(), bytes_max, moved);
    std::vector<std::byte> got(4 * kLarge);
    return ::recv(ends.b.get(), got.data(), got.size(), MSG_DONTWAIT);
  };
  EXPECT_EQ(sent_by(kLarge), ssize_t{kLarge});
  outgoing.end_step(buffers);
  EXPECT_EQ(buffers.unused(), 0U) << "answers are left";
  EXPECT_EQ(sent_by(kLarge - kAnswerBytes), ssize_t{kLarge - kAnswerBytes});
  EXPECT_EQ(sent_by(kMaxLoneStepBytes), ssize_t{kLarge + 2 * kAnswerBytes});
  outgoing.end_step(buffers);
  EXPECT_EQ(buffers.unused(), 1U);
  EXPECT_FALSE(outgoing.reads_by(3));
}

}  // namespace
}  // namespace remora::transport::tcp
