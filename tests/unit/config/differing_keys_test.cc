/// Which keys of two configurations differ.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <remora/config/describe.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kKeyA;
using testing::kKeyB;

ServerConfig two_of_each() {
  ServerConfig config;
  config.regions.resize(2);
  config.regions[0].name = "a";
  config.regions[1].name = "b";
  config.regions[1].access.resize(1);
  config.clients.resize(2);
  return config;
}

TEST(DifferingKeys, OfEqualConfigurationsAreNone) {
  EXPECT_THAT(differing_keys({}, {}), IsEmpty());
  EXPECT_THAT(differing_keys(two_of_each(), two_of_each()), IsEmpty());
}

TEST(DifferingKeys, OriginsDoNotCount) {
  ServerConfig read = two_of_each();
  read.origins["pool.size"] = {"remora.yaml", 3, ""};
  EXPECT_THAT(differing_keys(two_of_each(), read), IsEmpty());
}

TEST(DifferingKeys, AreNamedByTheirPaths) {
  ServerConfig after = two_of_each();
  after.pool.size_bytes += 4096;
  after.auth = Auth::kNone;
  after.regions[1].block_bytes = 512;
  after.regions[1].access[0].admin = true;
  after.clients[1].create = true;
  after.log.level = LogLevel::kDebug;
  after.log.format = LogFormat::kJson;
  EXPECT_THAT(differing_keys(two_of_each(), after),
              ElementsAre("pool.size", "regions[1].block", "regions[1].access[0].rights", "auth",
                          "clients[1].create", "log.level", "log.format"));
}

TEST(DifferingKeys, ListsOfOtherLengthsAreNamedOnce) {
  ServerConfig after = two_of_each();
  after.regions.erase(after.regions.begin());
  after.clients[1].admin = true;
  EXPECT_THAT(differing_keys(two_of_each(), after), ElementsAre("regions", "clients[1].admin"));
  EXPECT_THAT(differing_keys(after, two_of_each()), ElementsAre("regions", "clients[1].admin"));
  after = two_of_each();
  after.regions[1].access.resize(3);
  EXPECT_THAT(differing_keys(two_of_each(), after), ElementsAre("regions[1].access"));
}

TEST(DifferingKeys, OfKeysOnlyWhetherTheyAreSet) {
  ServerConfig before = two_of_each();
  before.clients[0].key = SecretKey::parse(kKeyA).value();
  ServerConfig after = before;
  after.clients[0].key = SecretKey::parse(kKeyB).value();
  EXPECT_THAT(differing_keys(before, after), IsEmpty());
  after.clients[0].key.reset();
  EXPECT_THAT(differing_keys(before, after), ElementsAre("clients[0].key"));
}

}  // namespace
}  // namespace remora::config
