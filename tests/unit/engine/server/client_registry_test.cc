// The rights of each client to each region; how often a client may ask and is logged.

#include "server/client_registry.h"

#include <gtest/gtest.h>

#include "base/log_rate_limiter.h"
#include "base/token_bucket.h"

namespace remora::detail {
namespace {

using namespace std::chrono_literals;

const KnownClient alice{.name = "alice", .keys = {}};
const KnownClient bob{.name = "bob", .keys = {}};
const KnownClient admin{.name = "root", .keys = {}, .create = true, .admin = true};

RegionInfo region(std::string owner, std::vector<RegionAccess> access,
                  Rights rights = Rights::kAll) {
  RegionInfo info;
  info.rights = rights;
  info.owner = std::move(owner);
  info.access = std::move(access);
  return info;
}

TEST(Permissions, WithoutKeysEachClientMayDoEverything) {
  const Permission found = permission_of(region("", {}, Rights::kRead), nullptr);
  EXPECT_EQ(found.rights, Rights::kRead);
  EXPECT_TRUE(found.admin);
}

TEST(Permissions, OfAnAdminAndOfTheOwnerAreAll) {
  for (const KnownClient* const client : {&admin, &alice}) {
    const Permission found = permission_of(region("alice", {}, Rights::kReadWrite), client);
    EXPECT_EQ(found.rights, Rights::kReadWrite);
    EXPECT_TRUE(found.admin);
  }
}

TEST(Permissions, OfOtherClientsToAClientsRegionAreNone) {
  EXPECT_FALSE(permission_of(region("alice", {}), &bob).any());
}

TEST(Permissions, OfAllClientsToTheServersRegionAreItsRights) {
  const Permission found = permission_of(region("", {}, Rights::kReadWrite), &bob);
  EXPECT_EQ(found.rights, Rights::kReadWrite);
  EXPECT_FALSE(found.admin);
}

TEST(Permissions, OfAListAreThoseOfTheClientAndOfAll) {
  const RegionInfo listed = region("alice",
                                   {{.client = "bob", .rights = Rights::kWrite, .admin = true},
                                    {.client = "*", .rights = Rights::kRead | Rights::kAtomic}},
                                   Rights::kReadWrite);
  EXPECT_EQ(permission_of(listed, &bob).rights, Rights::kReadWrite);
  EXPECT_TRUE(permission_of(listed, &bob).admin);
  const KnownClient carol{.name = "carol", .keys = {}};
  EXPECT_EQ(permission_of(listed, &carol).rights, Rights::kRead);
  EXPECT_FALSE(permission_of(listed, &carol).admin);
  EXPECT_FALSE(
      permission_of(region("", {{.client = "bob", .rights = Rights::kRead}}), &carol).any());
}

TEST(Registry, FindsClientsByTheirWholeName) {
  config::ClientConfig client;
  client.name = "alice";
  client.admin = true;
  client.quota_bytes = 5;
  const ClientRegistry registry{std::span{&client, 1}};
  ASSERT_NE(registry.find("alice"), nullptr);
  EXPECT_TRUE(registry.find("alice")->create);
  EXPECT_EQ(registry.find("alice")->quota_bytes, 5U);
  for (const char* const name : {"", "alic", "alice2", "Alice", "*"})
    EXPECT_EQ(registry.find(name), nullptr) << name;
}

TEST(Paces, OfAMinuteMayAllBeAtOnce) {
  TokenBucket pace = TokenBucket::a_minute(6);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(pace.admits(start));
  EXPECT_FALSE(pace.admits(start + std::chrono::seconds{9}));
  EXPECT_TRUE(pace.admits(start + std::chrono::seconds{11}));
  EXPECT_FALSE(pace.admits(start + std::chrono::seconds{12}));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(pace.admits(start + std::chrono::hours{1}));
  EXPECT_FALSE(pace.admits(start + std::chrono::hours{1}));
}

TEST(Paces, AreSoManyASecondAndTwiceAsManyAtOnce) {
  TokenBucket pace{10};
  const Clock::time_point began = Clock::now();
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += pace.admits(began) ? 1 : 0;
  EXPECT_EQ(admitted, 20);
  EXPECT_FALSE(pace.admits(began + 99ms));
  EXPECT_TRUE(pace.admits(began + 101ms));
  EXPECT_FALSE(pace.admits(began + 102ms));
  admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += pace.admits(began + 1h) ? 1 : 0;
  EXPECT_EQ(admitted, 20);
}

TEST(Paces, SayWhenTheNextIs) {
  TokenBucket pace{10};
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(pace.admits(began));
  EXPECT_FALSE(pace.admits(began + 30ms));
  EXPECT_GE(pace.next(), began + 100ms);
  EXPECT_LE(pace.next(), began + 101ms);
  EXPECT_TRUE(pace.admits(pace.next()));
  EXPECT_TRUE(pace.admits(pace.next()));
  EXPECT_FALSE(pace.admits(pace.next() - 1ms));
}

TEST(Paces, GoOnWithWhatIsLeftWhereTheBoundChanges) {
  TokenBucket pace{10};
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(pace.admits(began));
  pace.set_per_second(1000);
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += pace.admits(began) ? 1 : 0;
  EXPECT_EQ(admitted, 5) << "a higher bound gives nothing at once";
  admitted = 0;
  for (int i = 0; i < 3000; ++i) admitted += pace.admits(began + 1h) ? 1 : 0;
  EXPECT_EQ(admitted, 2000);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(pace.admits(began + 1h));
  pace.set_per_minute(6);
  admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += pace.admits(began + 2h) ? 1 : 0;
  EXPECT_EQ(admitted, 6);
}

TEST(LogRateLimiter, CountsWhatItLeavesOut) {
  log::LogRateLimiter limit{2};
  const Clock::time_point began = Clock::now();
  EXPECT_TRUE(limit.allows(began));
  EXPECT_TRUE(limit.allows(began));
  EXPECT_FALSE(limit.allows(began));
  EXPECT_FALSE(limit.allows(began + 900ms));
  EXPECT_TRUE(limit.allows(began + 1s));
  EXPECT_EQ(limit.take_left_out(), "; 2 more were not logged");
  EXPECT_EQ(limit.take_left_out(), "");
}

}  // namespace
}  // namespace remora::detail
