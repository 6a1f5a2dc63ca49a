/// What a running server takes of its file: the rules cover each key, and reloaded() follows them.

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include <remora/config/describe.h>

namespace remora::config {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ReloadRules, CoverEachKeyOfTheFile) {
  for (const KeyDescription& key : server_keys()) {
    // A map whose keys have rules of their own needs none.
    if (key.type == KeyType::kMap) continue;
    EXPECT_FALSE(reload_rule(key.path).path.empty()) << key.path;
    EXPECT_FALSE(reload_rule(key.path).note.empty()) << key.path;
  }
}

TEST(ReloadRules, NameKeysThatThereAre) {
  for (const ReloadRule& rule : reload_rules()) {
    bool found = false;
    for (const KeyDescription& key : server_keys()) found = found || key.path == rule.path;
    EXPECT_TRUE(found) << rule.path;
  }
}

TEST(ReloadRules, AreFoundForWhatDiffers) {
  EXPECT_TRUE(reload_rule("clients").taken);
  EXPECT_TRUE(reload_rule("clients[3].admin").taken);
  EXPECT_TRUE(reload_rule("limits.session_keep").taken);
  EXPECT_TRUE(reload_rule("log.level").taken);
  EXPECT_FALSE(reload_rule("limits.session_lease").taken);
  EXPECT_FALSE(reload_rule("regions[1].access[0].rights").taken);
  EXPECT_FALSE(reload_rule("pool.size").taken);
  EXPECT_FALSE(reload_rule("clientsbeside").taken);
  EXPECT_FALSE(reload_rule("").taken);
}

/// Another value in each of the limits.
Limits others() {
  Limits limits;
  limits.sessions_max += 1;
  limits.regions_max += 1;
  limits.session_regions_max += 1;
  limits.session_memory_bytes += 4096;
  limits.registrations_max += 1;
  limits.windows_max += 1;
  limits.registered_bytes_max += 4096;
  limits.pending_handshakes_max += 1;
  limits.requests_per_second += 1;
  limits.resumes_per_minute += 1;
  for (auto* const time :
       {&limits.handshake_timeout, &limits.request_timeout, &limits.session_lease,
        &limits.session_keep, &limits.drain_timeout, &limits.revoke_grace})
    *time += std::chrono::seconds{1};
  return limits;
}

TEST(Reloaded, TakesTheLimitsThatTheRulesSay) {
  ServerConfig running;
  ServerConfig read;
  read.limits = others();
  ServerConfig taken = running;
  taken.limits = reloaded(running.limits, read.limits);
  std::size_t count = 0;
  for (const KeyDescription& key : server_keys())
    count += key.path.starts_with("limits.") ? 1U : 0U;
  EXPECT_EQ(differing_keys(running, read).size(), count) << "others() leaves one out";
  for (const std::string& key : differing_keys(running, taken))
    EXPECT_TRUE(reload_rule(key).taken) << key;
  for (const std::string& key : differing_keys(taken, read))
    EXPECT_FALSE(reload_rule(key).taken) << key;
  EXPECT_THAT(differing_keys(running, taken), Not(IsEmpty()));
  EXPECT_THAT(differing_keys(taken, read), Each(StartsWith("limits.")));
}

TEST(Reloaded, OfEqualLimitsIsTheSame) {
  EXPECT_EQ(reloaded(others(), others()), others());
  EXPECT_EQ(reloaded({}, {}), Limits{});
}

}  // namespace
}  // namespace remora::config
