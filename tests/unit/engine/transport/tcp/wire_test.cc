#include "transport/tcp/wire.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <span>

#include "base/crc32c.h"
#include "transport/control_message.h"

namespace remora::transport::tcp {
namespace {

/// With the CRC in its last four bytes made right again, so that the field itself is what is
/// judged.
template <typename Wire>
Wire resealed(Wire wire) {
  const std::uint32_t crc = crc32c(std::span{wire}.first(wire.size() - 4));
  for (std::size_t i = 0; i < 4; ++i)
    wire[wire.size() - 4 + i] = static_cast<std::byte>(crc >> (8 * i));
  return wire;
}

/// Every single wrong bit is noticed.
template <typename Header, typename Wire>
void expect_every_bit_counts(const Wire& wire) {
  ASSERT_TRUE(Header::from_wire(wire));
  for (std::size_t at = 0; at < wire.size(); ++at)
    for (unsigned bit = 0; bit < 8; ++bit) {
      Wire wrong = wire;
      wrong[at] ^= static_cast<std::byte>(1U << bit);
      EXPECT_FALSE(Header::from_wire(wrong)) << "byte " << at << ", bit " << bit;
    }
}

template <typename Header, typename Wire>
bool taken_with(Wire wire, std::size_t at, unsigned value) {
  wire[at] = static_cast<std::byte>(value);
  return Header::from_wire(resealed(wire)).has_value();
}

TEST(TcpIntroduction, ComesBack) {
  const Introduction lane{
      .purpose = Purpose::kLane,
      .payload_crc = true,
      .ticket = {.session_id = 0x0123456789abcdef, .secret = 0xfedcba9876543210}};
  const auto wire = lane.to_wire();
  EXPECT_EQ(std::memcmp(wire.data(), "RMRT", 4), 0);
  EXPECT_EQ(wire[8], std::byte{0xef}) << "little-endian";
  const auto back = Introduction::from_wire(wire);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->purpose, Purpose::kLane);
  EXPECT_TRUE(back->payload_crc);
  EXPECT_EQ(back->ticket.session_id, lane.ticket.session_id);
  EXPECT_EQ(back->ticket.secret, lane.ticket.secret);
  expect_every_bit_counts<Introduction>(wire);
}

TEST(TcpIntroduction, FieldsOutOfBoundsAreRefused) {
  const auto wire = Introduction{.purpose = Purpose::kLane}.to_wire();
  EXPECT_FALSE(taken_with<Introduction>(wire, 0, 'r'));
  EXPECT_FALSE(taken_with<Introduction>(wire, 4, 0)) << "version";
  EXPECT_FALSE(taken_with<Introduction>(wire, 4, 2)) << "version";
  EXPECT_FALSE(taken_with<Introduction>(wire, 5, 2)) << "purpose";
  EXPECT_FALSE(taken_with<Introduction>(wire, 6, 2)) << "options";
  EXPECT_FALSE(taken_with<Introduction>(wire, 7, 1)) << "zero";
  EXPECT_FALSE(taken_with<Introduction>(wire, 24, 1)) << "zero";
  EXPECT_FALSE(taken_with<Introduction>(wire, 27, 1)) << "zero";
}

TEST(TcpIntroduction, ControlChannelHasNoTicketAndNoOptions) {
  const auto wire = Introduction{}.to_wire();
  EXPECT_TRUE(Introduction::from_wire(wire));
  for (const std::size_t at : {6U, 8U, 15U, 16U, 23U})
    EXPECT_FALSE(taken_with<Introduction>(wire, at, 1)) << at;
}

TEST(TcpWelcome, ComesBackAndNothingElseDoes) {
  for (const Purpose purpose : {Purpose::kControl, Purpose::kLane})
    for (const bool crc : {false, true}) {
      const auto wire = Welcome{.purpose = purpose, .payload_crc = crc}.to_wire();
      const auto back = Welcome::from_wire(wire);
      ASSERT_TRUE(back);
      EXPECT_EQ(back->purpose, purpose);
      EXPECT_EQ(back->payload_crc, crc);
      expect_every_bit_counts<Welcome>(wire);
      for (const std::size_t at : {4U, 5U, 6U}) EXPECT_FALSE(taken_with<Welcome>(wire, at, 2));
      for (const std::size_t at : {7U, 8U, 11U}) EXPECT_FALSE(taken_with<Welcome>(wire, at, 1));
    }
}

TEST(TcpFrame, LengthIsBounded) {
  const auto taken = [](std::uint32_t length) {
    return FrameHeader::from_wire(FrameHeader{.length_bytes = length}.to_wire()).has_value();
  };
  EXPECT_FALSE(taken(0));
  EXPECT_TRUE(taken(1));
  EXPECT_TRUE(taken(kMaxControlMessageBytes));
  EXPECT_FALSE(taken(kMaxControlMessageBytes + 1));
  EXPECT_FALSE(taken(UINT32_MAX));
  const FrameHeader header{.length_bytes = 77, .message_crc = 0x89abcdef};
  const auto back = FrameHeader::from_wire(header.to_wire());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->length_bytes, 77U);
  EXPECT_EQ(back->message_crc, 0x89abcdefU);
  expect_every_bit_counts<FrameHeader>(header.to_wire());
}

std::array<std::byte, RequestHeader::kWireBytes> wire_of(const RequestHeader& header) {
  std::array<std::byte, RequestHeader::kWireBytes> wire{};
  header.to_wire(wire);
  return wire;
}
std::array<std::byte, AnswerHeader::kWireBytes> wire_of(const AnswerHeader& header) {
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  header.to_wire(wire);
  return wire;
}

TEST(TcpRequest, EachFieldComesBackAtItsLargest) {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite, Opcode::kCompareSwap,
                              Opcode::kFetchAdd, Opcode::kWriteZeroes, Opcode::kNotify}) {
    const RequestHeader header{.opcode = opcode,
                               .answered = !is_write(opcode),
                               .length_bytes = opcode == Opcode::kNotify ? 0 : UINT32_MAX,
                               .address = UINT64_MAX - 1,
                               .key = UINT32_MAX - 2,
                               .sequence = UINT32_MAX - 3,
                               .compare_or_add = UINT64_MAX - 4,
                               .swap = UINT64_MAX - 5,
                               .payload_crc = UINT32_MAX - 6};
    const auto wire = wire_of(header);
    const auto back = RequestHeader::from_wire(wire);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->opcode, header.opcode);
    EXPECT_EQ(back->answered, header.answered);
    EXPECT_EQ(back->length_bytes, header.length_bytes);
    EXPECT_EQ(back->address, header.address);
    EXPECT_EQ(back->key, header.key);
    EXPECT_EQ(back->sequence, header.sequence);
    EXPECT_EQ(back->compare_or_add, header.compare_or_add);
    EXPECT_EQ(back->swap, header.swap);
    EXPECT_EQ(back->payload_crc, header.payload_crc);
    expect_every_bit_counts<RequestHeader>(wire);
  }
}

TEST(TcpRequest, FieldsOutOfBoundsAreRefused) {
  const auto wire = wire_of(RequestHeader{.opcode = Opcode::kWrite, .length_bytes = 8});
  for (const unsigned code : {0U, 7U, 255U})
    EXPECT_FALSE(taken_with<RequestHeader>(wire, 0, code)) << code;
  EXPECT_TRUE(taken_with<RequestHeader>(wire, 1, 0));
  EXPECT_FALSE(taken_with<RequestHeader>(wire, 1, 2)) << "flags";
  EXPECT_FALSE(taken_with<RequestHeader>(wire, 2, 1)) << "zero";
  EXPECT_FALSE(taken_with<RequestHeader>(wire, 3, 1)) << "zero";
}

TEST(TcpRequest, OnlyWritesMayGoUnanswered) {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kCompareSwap, Opcode::kFetchAdd})
    EXPECT_FALSE(RequestHeader::from_wire(
        wire_of(RequestHeader{.opcode = opcode, .answered = false, .length_bytes = 8})));
}

TEST(TcpAnswer, EachFieldComesBackAtItsLargest) {
  const AnswerHeader header{.status = CompletionStatus::kGeneral,
                            .opcode = Opcode::kFetchAdd,
                            .sequence = UINT32_MAX,
                            .length_bytes = UINT32_MAX - 1,
                            .payload_crc = UINT32_MAX - 2};
  const auto wire = wire_of(header);
  const auto back = AnswerHeader::from_wire(wire);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->status, header.status);
  EXPECT_EQ(back->opcode, header.opcode);
  EXPECT_EQ(back->sequence, header.sequence);
  EXPECT_EQ(back->length_bytes, header.length_bytes);
  EXPECT_EQ(back->payload_crc, header.payload_crc);
  expect_every_bit_counts<AnswerHeader>(wire);
}

TEST(TcpAnswer, TellsOfTheSuccessOfOneRequestOnly) {
  const AnswerHeader header{.opcode = Opcode::kRead, .sequence = 7, .length_bytes = 64};
  const auto wire = wire_of(header);
  EXPECT_TRUE(AnswerHeader::tells_of_success(wire, Opcode::kRead, 7, 64));
  EXPECT_FALSE(AnswerHeader::tells_of_success(wire, Opcode::kWrite, 7, 64));
  EXPECT_FALSE(AnswerHeader::tells_of_success(wire, Opcode::kRead, 8, 64));
  EXPECT_FALSE(AnswerHeader::tells_of_success(wire, Opcode::kRead, 7, 65));
  for (std::size_t at = 0; at < wire.size(); ++at)
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto wrong = wire;
      wrong[at] ^= static_cast<std::byte>(1U << bit);
      EXPECT_FALSE(AnswerHeader::tells_of_success(wrong, Opcode::kRead, 7, 64)) << at;
      EXPECT_TRUE(at >= 16 ||
                  !AnswerHeader::tells_of_success(resealed(wrong), Opcode::kRead, 7, 64))
          << at;
    }
}

TEST(TcpRequest, PlaceIsWhatAnyBytesSay) {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite, Opcode::kFetchAdd}) {
    auto wire = wire_of(
        RequestHeader{.opcode = opcode, .length_bytes = 9, .address = UINT64_MAX - 1, .key = 5});
    wire[47] ^= std::byte{1};
    const auto place = RequestHeader::place_of(wire);
    EXPECT_EQ(place.address, UINT64_MAX - 1);
    EXPECT_EQ(place.key, 5U);
    EXPECT_EQ(place.length_bytes, 9U);
    EXPECT_EQ(place.payload_bytes, opcode == Opcode::kWrite ? 9U : 0U);
  }
}

TEST(TcpAnswer, FieldsOutOfBoundsAreRefused) {
  const auto wire = wire_of(AnswerHeader{});
  EXPECT_TRUE(taken_with<AnswerHeader>(wire, 0, 21));
  EXPECT_FALSE(taken_with<AnswerHeader>(wire, 0, 22)) << "status";
  EXPECT_FALSE(taken_with<AnswerHeader>(wire, 1, 0)) << "opcode";
  EXPECT_FALSE(taken_with<AnswerHeader>(wire, 1, 7)) << "opcode";
  EXPECT_FALSE(taken_with<AnswerHeader>(wire, 2, 1)) << "zero";
  EXPECT_FALSE(taken_with<AnswerHeader>(wire, 3, 1)) << "zero";
}

TEST(RequestHeader, CarriesEveryFieldOfTheNotice) {
  constexpr Notice kNotice{.grant_id = 0x1122334455667788,
                           .offset_bytes = 0x0123456789abcdef,
                           .length_bytes = 0xfedcba9876543210,
                           .tag = 0xcafef00d};
  const auto back = RequestHeader::from_wire(wire_of(RequestHeader::notify(kNotice)));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->opcode, Opcode::kNotify);
  const Notice carried = back->notice();
  EXPECT_EQ(carried.grant_id, kNotice.grant_id);
  EXPECT_EQ(carried.offset_bytes, kNotice.offset_bytes);
  EXPECT_EQ(carried.length_bytes, kNotice.length_bytes);
  EXPECT_EQ(carried.tag, kNotice.tag);
}

TEST(RequestHeader, NoticeWithALengthIsNone) {
  // No bytes follow it and none come back, whatever a peer writes there.
  for (const std::uint32_t length : {1U, 1023U, 1024U, 2U << 20U, 0xffff'ffffU}) {
    std::array<std::byte, RequestHeader::kWireBytes> bytes{};
    RequestHeader{.opcode = Opcode::kNotify, .length_bytes = length}.to_wire(bytes);
    EXPECT_FALSE(RequestHeader::from_wire(bytes)) << length;
    EXPECT_EQ(answer_bytes(Opcode::kNotify, length), 0U);
  }
  std::array<std::byte, RequestHeader::kWireBytes> bytes{};
  RequestHeader{.opcode = Opcode::kNotify}.to_wire(bytes);
  EXPECT_TRUE(RequestHeader::from_wire(bytes));
}

}  // namespace
}  // namespace remora::transport::tcp
