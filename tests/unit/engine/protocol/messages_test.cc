#include "protocol/messages.h"

#include <gtest/gtest.h>
#include <random>

#include "transport/control_message.h"

namespace remora::control {
namespace {

Envelope ping(std::uint64_t id) {
  Envelope envelope;
  envelope.set_magic(kMagic);
  envelope.set_id(id);
  envelope.mutable_request()->mutable_ping();
  return envelope;
}

TEST(Messages, RoundTrip) {
  const auto bytes = encode(ping(7)).value();
  const auto decoded = decode(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->id(), 7U);
  EXPECT_TRUE(decoded->request().has_ping());
}

TEST(Messages, WithoutMagicIdOrKindIsAViolation) {
  Envelope wrong = ping(7);
  wrong.set_magic(1);
  EXPECT_EQ(decode(encode(wrong).value()).error().code(), Code::kProtocol);
  EXPECT_EQ(decode(encode(ping(0)).value()).error().code(), Code::kProtocol);
  Envelope empty;
  empty.set_magic(kMagic);
  empty.set_id(1);
  EXPECT_EQ(decode(encode(empty).value()).error().code(), Code::kProtocol);
}

TEST(Messages, EveryTruncationAndRandomBytesAreSurvived) {
  auto bytes = encode(ping(7)).value();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode(std::span{bytes}.first(length))) << length;
  std::mt19937 random{3};
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> noise(random() % 200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    (void)decode(noise);
  }
}

TEST(Messages, TooLongIsRefusedOnBothSides) {
  Envelope envelope = ping(1);
  envelope.mutable_request()->mutable_stat()->set_name(
      std::string(transport::kMaxControlMessageBytes, 'x'));
  EXPECT_EQ(encode(envelope).error().code(), Code::kLimitExceeded);
  EXPECT_FALSE(decode(std::vector<std::byte>(transport::kMaxControlMessageBytes + 1)));
}

TEST(Messages, FullPagesFitAMessage) {
  Envelope envelope;
  envelope.set_magic(kMagic);
  envelope.set_id(~0ULL);
  auto& opened = *envelope.mutable_reply()->mutable_open();
  for (std::size_t i = 0; i < kExtentsPerPage; ++i) {
    auto& extent = *opened.add_extents();
    extent.set_length_bytes(~0ULL);
    extent.set_address(~0ULL);
    extent.set_key(~0U);
    for (int lane = 0; lane < 8; ++lane) extent.add_lane_keys(~0U);
  }
  *opened.mutable_region() =
      to_message({.name = std::string(64, 'n'), .atomic_domain = std::string(64, 'd')});
  EXPECT_TRUE(encode(envelope));
  auto& list = *envelope.mutable_reply()->mutable_list();
  for (std::size_t i = 0; i < kRegionsPerPage; ++i)
    *list.add_regions() = to_message({.name = std::string(64, 'n'),
                                      .size_bytes = ~0ULL,
                                      .block_bytes = ~0ULL,
                                      .rights = Rights::kAll,
                                      .atomic_domain = std::string(64, 'd'),
                                      .shm = true,
                                      .epoch = ~0ULL,
                                      .incarnation = ~0ULL,
                                      .extent_count = ~0ULL,
                                      .open_count = ~0ULL});
  EXPECT_TRUE(encode(envelope));
}

TEST(Messages, ErrorsCrossTheWireWhole) {
  const Error error = Error{Code::kOutOfMemory, "pool"}
                          .with_reason(Reason::kMemlock)
                          .with_errno(12)
                          .with_limit(10, 5)
                          .with_subject("region");
  const Error back = to_error(to_failure(error), "open");
  EXPECT_EQ(back.code(), error.code());
  EXPECT_EQ(back.reason(), error.reason());
  EXPECT_EQ(back.system_errno(), 12);
  EXPECT_EQ(back.allowed(), 5U);
  EXPECT_EQ(back.subject(), "region");
  EXPECT_EQ(back.operation(), "open");
}

TEST(Messages, CodeFromTheFutureIsAViolationNotACrash) {
  Failure failure;
  failure.set_code(4000);
  failure.set_reason(4000);
  EXPECT_EQ(to_error(failure, "x").code(), Code::kProtocol);
}

TEST(Messages, RegionThatContradictsItselfIsRefused) {
  Region region =
      to_message({.name = "a", .size_bytes = 4096, .block_bytes = 4096, .extent_count = 1});
  EXPECT_TRUE(to_info(region));
  region.set_size_bytes(0);
  EXPECT_EQ(to_info(region).error().code(), Code::kProtocol);
}

TEST(AccessLists, OfTheLongestNamesFitIntoAMessage) {
  Envelope envelope;
  envelope.set_magic(kMagic);
  envelope.set_id(1);
  const std::vector<RegionAccess> list(
      kMaxRegionAccess,
      {.client = std::string(64, 'n'), .rights = Rights::kRead | Rights::kAtomic, .admin = true});
  Region& region = *envelope.mutable_reply()->mutable_stat()->mutable_region();
  add_access(list, region);
  ASSERT_TRUE(encode(envelope));
  EXPECT_EQ(to_access(region).value(), list);
}

TEST(AccessLists, OfAPeerAreChecked) {
  const auto code_of = [](const std::string& client, std::uint32_t rights) {
    Region region;
    region.add_access()->set_client(client);
    region.mutable_access(0)->set_rights(rights);
    const auto list = to_access(region);
    return list ? std::nullopt : std::optional{list.error().code()};
  };
  EXPECT_EQ(code_of("bob", 8), std::nullopt);
  EXPECT_EQ(code_of("*", 15), std::nullopt);
  for (const std::uint32_t rights : {0U, 16U, 24U, 0xffffffffU})
    EXPECT_EQ(code_of("bob", rights), Code::kInvalidArgument) << rights;
  for (const std::string& client : {std::string{}, std::string{"a b"}, std::string{"**"}})
    EXPECT_EQ(code_of(client, 1), Code::kInvalidArgument) << client;
  Region region;
  for (std::size_t i = 0; i <= kMaxRegionAccess; ++i) {
    region.add_access()->set_client("bob");
    region.mutable_access(static_cast<int>(i))->set_rights(1);
  }
  EXPECT_EQ(to_access(region).error().code(), Code::kLimitExceeded);
}

// A peer that does not authenticate must not be able to fill the log of an application that
// embeds a server.
TEST(Decode, WritesNothingOfWhatPeersSend) {
  Envelope envelope;
  envelope.set_magic(kMagic);
  envelope.set_id(1);
  envelope.mutable_request()->mutable_hello()->set_client_name("name");
  auto bytes = encode(envelope).value();
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  bytes[text.find("name")] = std::byte{0xff};  // not UTF-8
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(decode(bytes));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// An error's subject may be cut within a character, or be a name that was never UTF-8: a client
// could not read the answer, and would take the server for another program.
TEST(Failures, OfAnySubjectCanBeRead) {
  std::string euros;
  for (int i = 0; i < 40; ++i) euros += "\xe2\x82\xac";
  const std::pair<std::string, std::string> cases[] = {
      {euros, euros.substr(0, 84) + "?..."},
      {"r\xc3\xa9gion \xf0\x9f\x90\x9f", "r\xc3\xa9gion \xf0\x9f\x90\x9f"},
      {"\xff\xc0\x80\xe0\x80\x80", "??????"},             // longer forms than need be
      {"\xed\xa0\x80\xf4\x90\x80\x80\xc3", "????????"}};  // a surrogate, beyond the last, cut
  for (const auto& [subject, told] : cases) {
    Envelope envelope;
    envelope.set_magic(kMagic);
    envelope.set_id(1);
    *envelope.mutable_reply()->mutable_failure() =
        to_failure(Error{Code::kUnknownRegion, "region"}.with_subject(subject));
    const auto read = decode(encode(envelope).value());
    ASSERT_TRUE(read) << told;
    EXPECT_EQ(read->reply().failure().subject(), told);
  }
}

// The server would end the session of a client that sends it.
TEST(Encode, RequestWithTextThatIsNotUtf8IsInvalid) {
  Envelope envelope;
  envelope.set_magic(kMagic);
  envelope.set_id(1);
  envelope.mutable_request()->mutable_stat()->set_name("r\xe9gion");
  ::testing::internal::CaptureStderr();
  const auto bytes = encode(envelope);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace remora::control
