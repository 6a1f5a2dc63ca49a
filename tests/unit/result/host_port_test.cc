#include <gtest/gtest.h>
#include <string_view>

#include <remora/host_port.h>

namespace remora::detail {
namespace {

void expect_parts(std::string_view text, const HostPort& wanted) {
  const auto parts = split_host_port(text);
  ASSERT_TRUE(parts.has_value()) << text;
  EXPECT_EQ(parts->host, wanted.host) << text;
  EXPECT_EQ(parts->port, wanted.port) << text;
  EXPECT_EQ(parts->in_brackets, wanted.in_brackets) << text;
  EXPECT_EQ(parts->has_port, wanted.has_port) << text;
}

TEST(SplitHostPort, TakesNamesAndAddressesWithAndWithoutAPort) {
  expect_parts("storage-1", {.host = "storage-1", .port = ""});
  expect_parts("storage-1:7471", {.host = "storage-1", .port = "7471", .has_port = true});
  expect_parts("10.0.0.1:80", {.host = "10.0.0.1", .port = "80", .has_port = true});
  expect_parts("[::1]", {.host = "::1", .port = "", .in_brackets = true});
  expect_parts("[fe80::1%eth0]:7471",
               {.host = "fe80::1%eth0", .port = "7471", .in_brackets = true, .has_port = true});
}

TEST(SplitHostPort, LeavesTheCheckOfThePartsToTheCaller) {
  expect_parts("", {.host = "", .port = ""});
  expect_parts(":80", {.host = "", .port = "80", .has_port = true});
  expect_parts("host:", {.host = "host", .port = "", .has_port = true});
  expect_parts("[]:80", {.host = "", .port = "80", .in_brackets = true, .has_port = true});
  expect_parts("host:80:81", {.host = "host", .port = "80:81", .has_port = true});
}

TEST(SplitHostPort, SplitsAnAddressWithoutBracketsAtItsFirstColon) {
  expect_parts("fe80::1", {.host = "fe80", .port = ":1", .has_port = true});
}

TEST(SplitHostPort, RefusesABracketThatIsOpenOrFollowedByText) {
  EXPECT_FALSE(split_host_port("[::1"));
  EXPECT_FALSE(split_host_port("[::1:80"));
  EXPECT_FALSE(split_host_port("[::1]80"));
  EXPECT_FALSE(split_host_port("[::1]]:80"));
}

TEST(JoinHostPort, PutsBracketsAroundAnAddressWithColons) {
  EXPECT_EQ(join_host_port("storage-1", 7471), "storage-1:7471");
  EXPECT_EQ(join_host_port("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(join_host_port("fe80::1%eth0", 65535), "[fe80::1%eth0]:65535");
}

}  // namespace
}  // namespace remora::detail
