// Records come back as they were written; others are refused with the member that is wrong.

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include <remora/volume/cluster.h>
#include <remora/volume/records.h>
#include <remora/volume/remedy.h>

#include "support/assert_ok.h"

namespace remora::volume {
namespace {

using ::testing::HasSubstr;

ServerRecord server() {
  return {.name = "s1",
          .addresses = {"192.0.2.1:7471", "[fe80::1]:7471"},
          .boot_id = 0xfedcba9876543210U,
          .memory_id = 7,
          .pool_bytes = 1U << 30U,
          .pool_free_bytes = 1U << 20U,
          .failure_domain = "rack1",
          .software = "0.1.0"};
}

VolumeRecord volume() {
  VolumeRecord record;
  record.name = "disk";
  record.id = random_number();
  record.size_bytes = 4096 * 3;
  record.block_bytes = 4096;
  record.width = 3;
  record.nonce = random_number();
  return record;
}

GroupRecord group() {
  GroupRecord record;
  record.index = 5;
  record.generation = 9;
  record.nonce = 3;
  record.members.push_back({"s1", {"192.0.2.1:7471"}, 7, "vol-1-5-2", 4, MemberState::kInSync});
  record.members.push_back({"s2", {"192.0.2.2:7471"}, 8, "vol-1-5-3", 5, MemberState::kSyncing});
  return record;
}

/// `text` with the first `from` replaced.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Records, ComeBackAsTheyWere) {
  EXPECT_EQ(parse_server("k", to_json(server())).value(), server());
  const VolumeRecord made = volume();
  EXPECT_EQ(parse_volume("k", to_json(made)).value(), made);
  EXPECT_EQ(parse_group("k", to_json(group())).value(), group());
  EXPECT_EQ(parse_generation("k", generation_json(0xabcU)).value(), 0xabcU);
}

TEST(Records, OtherVersionsAreUnsupported) {
  for (const std::string& text : {to_json(server()), to_json(volume()), to_json(group())})
    for (const std::uint64_t version : {std::uint64_t{0}, kRecordVersion + 1}) {
      const auto other = parse_server(
          "/remora/lab/x", with(text, "\"version\":1", "\"version\":" + std::to_string(version)));
      ASSERT_FALSE(other);
      EXPECT_EQ(other.error().code(), Code::kUnsupported);
      EXPECT_EQ(other.error().asked(), version);
      EXPECT_EQ(other.error().allowed(), kRecordVersion);
      EXPECT_THAT(remedy(other.error()), HasSubstr("version of Remora"));
    }
}

TEST(Records, WrongMemberIsNamed) {
  const auto refused = [](const Error& error, const char* member) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_EQ(error.subject(), std::string{"k: "} + member);
    EXPECT_THAT(remedy(error), HasSubstr("'etcdctl get KEY'"));
  };
  const std::string text = to_json(volume());
  refused(parse_volume("k", with(text, "\"block_bytes\":4096", "\"block_bytes\":4097")).error(),
          "block_bytes");
  refused(parse_volume("k", with(text, "\"size_bytes\":12288", "\"size_bytes\":12289")).error(),
          "size_bytes");
  refused(parse_volume("k", with(text, "\"kind\":\"striped\"", "\"kind\":\"raid5\"")).error(),
          "kind");
  refused(parse_volume("k", with(text, "\"copies\":1", "\"copies\":2")).error(), "copies");
  refused(parse_volume("k", with(text, "\"width\":3", "\"width\":0")).error(), "width");
  refused(parse_volume("k", with(text, "\"name\":\"disk\"", "\"name\":\"a/b\"")).error(), "name");
  refused(parse_volume("k", with(text, "\"nonce\":\"", "\"nonce\":\"x")).error(), "nonce");
  refused(parse_volume("k", with(text, "\"exclusive\":false", "\"exclusive\":0")).error(),
          "exclusive");
  refused(parse_volume("k", "[]").error(), "JSON object");
  refused(parse_volume("k", "{\"version\":").error(), "JSON object");
  refused(parse_volume("k", "{}").error(), "version");
  refused(parse_server("k", with(to_json(server()), "\"pool_free_bytes\":1048576",
                                 "\"pool_free_bytes\":1073741825"))
              .error(),
          "pool_free_bytes");
  refused(parse_group("k", with(to_json(group()), "in_sync", "insync")).error(), "members: state");
  GroupRecord empty = group();
  empty.members.clear();
  refused(parse_group("k", to_json(empty)).error(), "members");
  GroupRecord same = group();  // a member that is named twice would be opened once
  same.members[1].region = same.members[0].region;
  refused(parse_group("k", to_json(same)).error(), "members: region");
}

TEST(Records, LastRowMayBeLargerThanTheVolume) {
  VolumeRecord record = volume();
  record.group_bytes = kStripeBytesDefault * 2;
  record.size_bytes = record.row_bytes();
  EXPECT_EQ(record.group_count(), 3U);
  record.size_bytes += 4096;
  EXPECT_EQ(record.group_count(), 6U);
}

TEST(Records, RegionsOfAVolumeBeginWithItsPrefix) {
  const std::string name = region_name(0x12U, 16383, UINT64_MAX);
  EXPECT_LE(name.size(), 64U);
  EXPECT_TRUE(name.starts_with(region_prefix(0x12U)));
  EXPECT_FALSE(name.starts_with(region_prefix(0x1U)));
}

}  // namespace
}  // namespace remora::volume
