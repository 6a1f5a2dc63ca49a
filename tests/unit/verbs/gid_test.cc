#include <arpa/inet.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::GidEntry;
using verbs::GidType;
using verbs::GidVerdict;

GidEntry row(std::uint32_t index, GidType type, const char* text, std::uint8_t port = 1) {
  GidEntry entry;
  entry.index = index;
  entry.type = type;
  entry.port = port;
  ::inet_pton(AF_INET6, text, entry.gid.bytes.data());
  return entry;
}

TEST(ChooseGid, PrefersRoceV2WithIpv4) {
  const std::vector table{
      row(0, GidType::kRoceV1, "fe80::1"),         row(1, GidType::kRoceV2, "fe80::1"),
      row(2, GidType::kRoceV1, "::ffff:10.0.0.1"), row(3, GidType::kRoceV2, "2001:db8::1"),
      row(4, GidType::kRoceV2, "::ffff:10.0.0.1"), row(5, GidType::kRoceV2, "::ffff:10.0.0.2")};
  const auto choice = verbs::choose_gid(table);
  EXPECT_EQ(choice.taken().value().index, 4U);
  const auto verdicts = choice.candidates();
  EXPECT_EQ(verdicts[0].verdict, GidVerdict::kLinkLocal);
  EXPECT_EQ(verdicts[1].verdict, GidVerdict::kLinkLocal);
  EXPECT_EQ(verdicts[2].verdict, GidVerdict::kLeftForBetter);
  EXPECT_EQ(verdicts[3].verdict, GidVerdict::kLeftForBetter);
  EXPECT_EQ(verdicts[4].verdict, GidVerdict::kTaken);
  EXPECT_EQ(verdicts[5].verdict, GidVerdict::kLeftForEarlier);
}

TEST(ChooseGid, LinkLocalIsNeverTakenSilently) {
  const std::vector table{row(0, GidType::kRoceV2, "fe80::1"),
                          row(1, GidType::kRoceV2, "::ffff:169.254.1.1")};
  EXPECT_CODE(verbs::choose_gid(table).taken(), kNotFound);
  const auto allowed = verbs::choose_gid(table, {.port = 1, .allow_link_local = true});
  EXPECT_EQ(allowed.taken().value().index, 0U);
}

TEST(ChooseGid, UnusableRowsSayWhy) {
  const std::vector table{row(0, GidType::kRoceV2, "::"), row(1, GidType::kRoceV2, "::1"),
                          row(2, GidType::kRoceV2, "::ffff:127.0.0.1"),
                          row(3, GidType::kUnknown, "::ffff:10.0.0.1"),
                          row(4, GidType::kRoceV2, "::ffff:10.0.0.1", 2)};
  const auto choice = verbs::choose_gid(table);
  EXPECT_CODE(choice.taken(), kNotFound);
  const std::vector expected{GidVerdict::kZero, GidVerdict::kLoopback, GidVerdict::kLoopback,
                             GidVerdict::kUnknownType, GidVerdict::kOtherPort};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(choice.candidates()[i].verdict, expected[i]) << i;
}

TEST(ChooseGid, DefaultGidOfInfiniBandIsUsable) {
  const std::vector table{row(0, GidType::kInfiniBand, "fe80::1")};
  EXPECT_EQ(verbs::choose_gid(table).taken().value().index, 0U);
}

TEST(ChooseGid, EmptyTableIsNotFound) { EXPECT_CODE(verbs::choose_gid({}).taken(), kNotFound); }

TEST(ChooseGid, IsPrintedLineByLine) {
  const std::vector table{row(0, GidType::kRoceV2, "fe80::1"),
                          row(1, GidType::kRoceV2, "::ffff:10.0.0.1")};
  EXPECT_EQ(verbs::choose_gid(table).to_string(),
            "port 1 gid 0 RoCE v2 fe80::1: left: link-local, reaches one segment only\n"
            "port 1 gid 1 RoCE v2 ::ffff:10.0.0.1: taken\n");
}

verbs::Gid gid_of(const char* text) {
  verbs::Gid gid;
  ::inet_pton(AF_INET6, text, gid.bytes.data());
  return gid;
}

TEST(DiagnoseRoute, NamesWhatDoesNotGoTogether) {
  const auto ipv4 = gid_of("::ffff:192.0.2.1");
  EXPECT_EQ(verbs::diagnose_route(ipv4, gid_of("::ffff:192.0.2.2")), Reason::kNone);
  EXPECT_EQ(verbs::diagnose_route(ipv4, gid_of("::")), Reason::kGidUnset);
  EXPECT_EQ(verbs::diagnose_route(ipv4, gid_of("2001:db8::1")), Reason::kGidFamily);
  EXPECT_EQ(verbs::diagnose_route(ipv4, gid_of("::ffff:169.254.0.1")), Reason::kGidScope);
  EXPECT_EQ(verbs::diagnose_route(gid_of("2001:db8::1"), gid_of("fe80::1")), Reason::kGidScope);
  EXPECT_EQ(verbs::diagnose_route(ipv4, gid_of("::ffff:127.0.0.1")), Reason::kGidScope);
}

}  // namespace
}  // namespace remora::test
