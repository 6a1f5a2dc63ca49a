// The effective configuration as text, and the table of keys that everything is made from.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include <remora/config/describe.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parsed;
using testing::with_pool;

void expect_same(const ServerConfig& a, const ServerConfig& b) {
  EXPECT_EQ(a.listen, b.listen);
  EXPECT_EQ(a.transports, b.transports);
  EXPECT_EQ(a.rdma, b.rdma);
  EXPECT_EQ(a.pool, b.pool);
  EXPECT_EQ(a.regions, b.regions);
  EXPECT_EQ(a.auth, b.auth);
  EXPECT_EQ(a.clients, b.clients);
  EXPECT_EQ(a.limits, b.limits);
  EXPECT_EQ(a.log, b.log);
  EXPECT_EQ(a.metrics, b.metrics);
}

TEST(Show, TellsWhereEveryValueCameFrom) {
  const ServerConfig config =
      parsed("pool:\n  size: ${N}MiB\nregions:\n  - {name: 'null', size: 8KiB, rights: [read]}\n",
             {{"N", "1"}});
  EXPECT_EQ(show(config), R"(listen:
  address: 127.0.0.1                      # default
  port: 7471                              # default
transports:
  rdma: auto                              # default
  rdma_device: auto                       # default
  rdma_protection: auto                   # default
  shm: auto                               # default
  tcp: auto                               # default
  tcp_threads: auto                       # default
  tcp_spin: 50us                          # default
# rdma:                                   # not set
pool:
  size: 1MiB                              # f.yaml:2 from N
  piece: 1GiB                             # default
  huge_pages: try                         # default
  populate: true                          # default
  core_dump: false                        # default
  warm_restart: false                     # default
regions:
  - name: "null"                          # f.yaml:4
    size: 8KiB                            # f.yaml:4
    block: 4KiB                           # default
    rights: [read]                        # f.yaml:4
    atomics: auto                         # default
    shm: false                            # default
    # access:                             # not set
# auth:                                   # not set
# clients:                                # not set
limits:
  sessions_max: 1024                      # default
  regions_max: 4096                       # default
  session_regions_max: 1024               # default
  # session_memory:                       # not set
  handshake_timeout: 5s                   # default
  request_timeout: 30s                    # default
  session_lease: 10s                      # default
  session_keep: 10s                       # default
  drain_timeout: 5s                       # default
  pending_handshakes_max: 256             # default
  requests_per_second: 1000               # default
  resumes_per_minute: 3000                # default
  revoke_grace: 1s                        # default
  registrations_max: 0                    # default
  windows_max: 0                          # default
  # registered_bytes_max:                 # not set
log:
  level: info                             # default
  format: text                            # default
metrics:
  address: none                           # default
  # token:                                # not set
  # token_file:                           # not set
  # user:                                 # not set
  # password:                             # not set
  # password_file:                        # not set
  # allowed_hosts:                        # not set
# cluster:                                # not set
)");
}

TEST(Show, HidesSecretsAndWhatItPrintsDoesNotLoadWithoutThem) {
  const ServerConfig config = parsed(
      with_pool("metrics: {address: '127.0.0.1:1', token: t0ken, user: eve, password: '${P}'}\n"),
      {{"P", "pa55"}});
  const std::string text = show(config);
  EXPECT_THAT(text, HasSubstr("  token: ${HIDDEN}                        # f.yaml:2\n"));
  EXPECT_THAT(text, HasSubstr("  password: ${HIDDEN}                     # f.yaml:2 from P\n"));
  EXPECT_THAT(text, Not(HasSubstr("t0ken")));
  EXPECT_THAT(text, Not(HasSubstr("pa55")));
  EXPECT_THAT(faults(text), HasSubstr("the environment variable HIDDEN is not set"));
}

TEST(Show, SaysThatASecretIsFromAFile) {
  ServerConfig config;
  config.metrics.token = "t0ken";
  config.metrics.token_file = "token.txt";
  const std::string text = show(config);
  EXPECT_THAT(text, HasSubstr("  # token:                                # from token_file\n"));
  EXPECT_THAT(text, HasSubstr("  token_file: token.txt "));
  EXPECT_THAT(text, Not(HasSubstr("t0ken")));
}

TEST(Show, MarksWhatAProgramSet) {
  ServerConfig config;
  config.pool.size_bytes = 1U << 20U;
  config.listen.port = 9;
  const std::string text = show(config);
  EXPECT_THAT(text, HasSubstr("  port: 9                                 # program\n"));
  EXPECT_THAT(text, HasSubstr("  size: 1MiB                              # program\n"));
  EXPECT_THAT(text, HasSubstr("regions: []                               # default\n"));
}

TEST(Show, PrintsOddTextsSafely) {
  ServerConfig config;  // no valid file has these
  config.listen.address = "a\"b\\c\nd${E}";
  config.origins["listen.address"] = {"odd\nname", 3, ""};
  EXPECT_THAT(show(config), HasSubstr(R"(address: "a\"b\\c\x0ad$${E}"            # odd\nname:3)"));
}

TEST(Show, NamesThatLookLikeSomethingElseAreQuoted) {
  ServerConfig config;
  config.pool.size_bytes = 1U << 20U;
  for (const char* const name :
       {"null", "NULL", "-", "---", "...", ".x", "010", "yes", "true", "a-b"})
    config.regions.push_back({.name = name, .size_bytes = 4096});
  expect_same(parsed(show(config)), config);
}

// Random valid configurations: what show() prints reads back as the same configuration.
class ShowProperty : public ::testing::Test {
 protected:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  std::string name() {
    constexpr std::string_view kCharacters = "aZ09._-";
    std::string text;
    while (!is_region_name(text)) {
      text.clear();
      for (std::uint64_t n = 1 + below(64); n > 0; --n)
        text.push_back(kCharacters[below(kCharacters.size())]);
    }
    return text;
  }
  ServerConfig configuration() {
    ServerConfig config;
    config.listen = {one_of<std::string>({"127.0.0.1", "::", "fe80::1%eth0", "storage7"}),
                     static_cast<std::uint16_t>(1 + below(7000))};
    config.transports = {one_of({Availability::kAuto, Availability::kRequired}),
                         one_of<std::vector<std::string>>({{}, {"mlx5_0"}, {"mlx5_1", "mlx5_0"}}),
                         one_of({RdmaProtection::kAuto, RdmaProtection::kRegistrations,
                                 RdmaProtection::kWindows, RdmaProtection::kWindowsUnchecked}),
                         one_of({Availability::kAuto, Availability::kRequired}),
                         one_of({Availability::kOff, Availability::kAuto}),
                         static_cast<std::uint32_t>(below(65)),
                         std::chrono::microseconds{below(1000)}};
    config.pool = {(1 + below(64)) << 40U >> below(12), 1ULL << 30U,
                   one_of({HugePages::kNever, HugePages::kTry, HugePages::kRequire}),
                   below(2) == 0};
    for (std::uint64_t n = below(4); n > 0; --n) {
      RegionConfig region{.name = name(), .block_bytes = 64ULL << below(19)};
      region.size_bytes = region.block_bytes * (1 + below(100));
      region.rights = {true, below(2) == 0, below(2) == 0};
      region.atomics = region.rights.atomic ? one_of<std::string>({"auto", "cpu"}) : "none";
      region.shm = below(2) == 0;
      config.regions.push_back(region);
    }
    config.auth = Auth::kNone;
    config.limits.sessions_max = static_cast<std::uint32_t>(1 + below(65536));
    config.limits.request_timeout = std::chrono::nanoseconds{100'000'000 + below(1'000'000'000)};
    config.limits.session_lease = std::chrono::seconds{1 + below(3600)};
    config.limits.session_keep = std::chrono::seconds{below(3601)};
    config.limits.drain_timeout = std::chrono::milliseconds{below(3'600'000)};
    config.limits.revoke_grace = std::chrono::milliseconds{1 + below(60'000)};
    config.log.level = one_of({LogLevel::kTrace, LogLevel::kWarn, LogLevel::kOff});
    config.log.format = one_of({LogFormat::kText, LogFormat::kJson});
    if (below(2) == 0) config.metrics.address = "[::1]:9471";
    if (below(2) == 0) config.rdma.pkey = static_cast<std::uint16_t>(1 + below(0xffff));
    if (below(2) == 0) config.rdma.traffic_class = static_cast<std::uint8_t>(below(256));
    if (below(2) == 0) config.rdma.mtu = one_of<std::uint16_t>({256, 1024, 4096});
    return config;
  }
  std::mt19937_64 random_{7471};  // fixed, so that a failure can be repeated
};

TEST_F(ShowProperty, ReadsBackAsTheSame) {
  for (int i = 0; i < 300; ++i) {
    const ServerConfig config = configuration();
    ASSERT_EQ(validate(config).to_string(), "");
    expect_same(parsed(show(config)), config);
    ASSERT_FALSE(HasFailure()) << show(config);
  }
}

TEST(ServerKeys, AreDistinctAndDescribed) {
  std::set<std::string> paths;
  for (const KeyDescription& key : server_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.help.empty()) << key.path;
    EXPECT_NE(to_string(key.type), "unknown") << key.path;
    if (key.type != KeyType::kMap) {
      EXPECT_FALSE(key.range.empty()) << key.path;
    }
    const bool group = key.type == KeyType::kMap || key.type == KeyType::kList;
    const bool unset = key.path == "auth" || key.path == "clients[].quota" ||
                       key.path == "limits.session_memory" ||
                       key.path == "limits.registered_bytes_max" || key.path.starts_with("rdma.") ||
                       key.path.find("key") != key.path.npos || key.path.starts_with("cluster.") ||
                       (key.path.starts_with("metrics.") && key.path != "metrics.address");
    EXPECT_EQ(key.standard.empty(), group || key.required || unset) << key.path;
  }
  EXPECT_TRUE(paths.contains("pool.size"));
}

TEST(ServerKeys, AMapStandsBeforeItsMembers) {
  std::set<std::string> seen;
  for (const KeyDescription& key : server_keys()) {
    const std::size_t dot = key.path.rfind('.');
    std::string parent = dot == std::string::npos ? "" : key.path.substr(0, dot);
    if (parent.ends_with("[]")) parent.resize(parent.size() - 2);
    EXPECT_TRUE(parent.empty() || seen.contains(parent)) << key.path;
    seen.insert(key.path);
  }
}

TEST(ServerKeys, EveryDefaultIsAcceptedWhenWritten) {
  for (const KeyDescription& key : server_keys()) {
    if (key.standard.empty()) continue;
    const std::size_t dot = key.path.rfind('.');
    ASSERT_NE(dot, std::string::npos) << key.path;
    const std::string parent = key.path.substr(0, dot);
    const std::string line = key.path.substr(dot + 1) + ": " + key.standard;
    std::ostringstream text;
    if (parent == "pool")
      text << "pool: {size: 1MiB, " << line << "}\n";
    else if (parent == "regions[]")
      text << "pool: {size: 1MiB}\nregions: [{name: a, size: 4KiB, " << line << "}]\n";
    else if (parent == "clients[]")
      text << "pool: {size: 1MiB}\nauth: keys\nclients: [{name: a, key: " << testing::kKeyA << ", "
           << line << "}]\n";
    else
      text << "pool: {size: 1MiB}\n" << parent << ": {" << line << "}\n";
    EXPECT_EQ(testing::faults(text.str()), "no fault") << text.str();
  }
}

}  // namespace
}  // namespace remora::config
