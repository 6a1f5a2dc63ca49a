// Texts without the addresses of a site.

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "doctor/address_mask.h"

namespace remora::apps::doctor {
namespace {

std::string masked(const std::string& text, std::vector<std::string> hosts = {}) {
  AddressMask mask{std::move(hosts)};
  return mask.apply(text);
}

TEST(DoctorAnonymize, AddressesAreReplaced) {
  EXPECT_EQ(masked("packets to 192.0.2.7 go"), "packets to address-1 go");
  EXPECT_EQ(masked("remora://192.0.2.7:7471/cache"), "remora://address-1:7471/cache");
  EXPECT_EQ(masked("[2001:db8::1]:7471"), "[address-1]:7471");
  EXPECT_EQ(masked("fe80::1%eth0"), "address-1%eth0");
  EXPECT_EQ(masked("gid 1 ::ffff:192.0.2.1 (eth0)"), "gid 1 address-1 (eth0)");
  EXPECT_EQ(masked("at 192.0.2.7."), "at address-1.");
  EXPECT_EQ(masked("at 192.0.2.7: refused"), "at address-1: refused");
  EXPECT_EQ(masked("mac 52:54:00:12:34:56"), "mac mac-1");
  EXPECT_EQ(masked("guid 5054:00ff:fe12:3456"), "guid guid-1");
}

TEST(DoctorAnonymize, EqualAddressesStayEqual) {
  EXPECT_EQ(masked("10.0.0.1 10.0.0.2 10.0.0.1"), "address-1 address-2 address-1");
}

TEST(DoctorAnonymize, AddressesThatSayNothingStay) {
  const std::string text = "127.0.0.1:7471 and ::1, 0.0.0.0";
  EXPECT_EQ(masked(text), text);
}

TEST(DoctorAnonymize, OtherTextsStay) {
  for (const char* const text :
       {"libibverbs.so.1.14.44.0", "Linux 6.1.0-18-amd64", "remora::Engine", "add: a bad face",
        "12:30:45", "64MiB of 128MiB", "0-3,8", ""})
    EXPECT_EQ(masked(text), text);
}

TEST(DoctorAnonymize, HostNamesAreReplacedAsWords) {
  EXPECT_EQ(masked("storage7:7471 and storage70", {"storage7"}), "host:7471 and storage70");
  EXPECT_EQ(masked("storage7.example: refused", {"storage7", "storage7.example"}), "host: refused");
  EXPECT_EQ(masked("localhost", {"localhost"}), "localhost");
  EXPECT_EQ(masked("host", {"host"}), "host");
}

}  // namespace
}  // namespace remora::apps::doctor
