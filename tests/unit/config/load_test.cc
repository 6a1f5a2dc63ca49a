// What a correct file means, and how a file is found and read.

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::faults;
using ::testing::IsEmpty;
using testing::parsed;
using testing::with_pool;

TEST(ParseServer, AllowedHostsAreDividedByCommas) {
  const auto hosts = [](const std::string& value) {
    return parsed(with_pool("metrics: {address: \"127.0.0.1:9471\", allowed_hosts: \"" + value +
                            "\"}\n"))
        .metrics.allowed_hosts;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(hosts("storage7.example.com"), (Names{"storage7.example.com"}));
  EXPECT_EQ(hosts("a.example , b,c"), (Names{"a.example", "b", "c"}));
  EXPECT_EQ(hosts("*"), (Names{"*"}));
  for (const char* wrong : {"a b", "a,,b", "http://a", "a:9471", ","})
    EXPECT_NE(faults(with_pool(std::string{"metrics: {address: \"127.0.0.1:9471\", "
                                           "allowed_hosts: \""} +
                               wrong + "\"}\n")),
              "")
        << wrong;
}

TEST(ParseServer, OnlyPoolSizeIsRequired) {
  const ServerConfig config = parsed("pool: {size: 256MiB}\n");
  EXPECT_EQ(config.listen, Listen{});
  EXPECT_EQ(config.transports, Transports{});
  EXPECT_EQ(config.pool, (Pool{.size_bytes = 256ULL << 20U}));
  EXPECT_TRUE(config.regions.empty());
  EXPECT_FALSE(config.auth);
  EXPECT_EQ(config.limits, Limits{});
  EXPECT_EQ(config.log, Log{});
  EXPECT_EQ(config.metrics, Metrics{});
}

TEST(ParseServer, EveryKeyReachesItsField) {
  const ServerConfig config = parsed(R"(
listen: {address: "fe80::1%eth0", port: 65535}
transports:
  rdma: required
  rdma_device: mlx5_0
  rdma_protection: registrations
  shm: auto
  tcp: off
  tcp_threads: 3
  tcp_spin: 1ms
rdma:
  traffic_class: 106
  service_level: 0
  pkey: 0x8001
  gid_index: 3
  mtu: 1024
  timeout: 20
  retry_count: 0
  rnr_retry: 7
pool: {size: 8MiB, piece: 2MiB, huge_pages: require, populate: false, core_dump: true, warm_restart: true}
regions:
  - {name: a.b_c-D9, size: 1MiB, block: 64, rights: [atomic, read], atomics: mlx5_0, shm: true}
  - {name: b, size: 128B, block: 128B, atomics: cpu}
auth: none
limits:
  sessions_max: 1
  regions_max: 2
  session_regions_max: 3
  session_memory: 5MiB
  handshake_timeout: 100ms
  request_timeout: 1h
  session_lease: 3s
  session_keep: 4s
  drain_timeout: 2s
  pending_handshakes_max: 7
  requests_per_second: 10
  resumes_per_minute: 11
  revoke_grace: 1ms
  registrations_max: 12
  windows_max: 13
  registered_bytes_max: 14MiB
log: {level: trace, format: json}
metrics: {address: "[::1]:9471"}
)");
  EXPECT_EQ(config.listen, (Listen{"fe80::1%eth0", 65535}));
  EXPECT_EQ(config.transports, (Transports{Availability::kRequired,
                                           {"mlx5_0"},
                                           RdmaProtection::kRegistrations,
                                           Availability::kAuto,
                                           Availability::kOff,
                                           3,
                                           std::chrono::milliseconds{1}}));
  EXPECT_EQ(config.rdma, (RdmaSettings{106, 0, 0x8001, 3, 1024, 20, 0, 7}));
  EXPECT_EQ(config.pool, (Pool{8U << 20U, 2U << 20U, HugePages::kRequire, false, true, true}));
  ASSERT_EQ(config.regions.size(), 2U);
  EXPECT_EQ(config.regions[0],
            (RegionConfig{"a.b_c-D9", 1U << 20U, 64, {true, false, true}, "mlx5_0", true, {}}));
  EXPECT_EQ(config.regions[1], (RegionConfig{"b", 128, 128, {}, "cpu", false, {}}));
  EXPECT_EQ(config.auth, Auth::kNone);
  EXPECT_EQ(config.limits, (Limits{1, 2, 3, 5U << 20U, 100ms, 1h, 3s, 4s, 2s, 7, 10, 11, 1ms, 12,
                                   13, 14U << 20U}));
  EXPECT_EQ(config.log, (Log{LogLevel::kTrace, LogFormat::kJson}));
  EXPECT_EQ(config.metrics.address, "[::1]:9471");
}

TEST(ParseServer, NumbersOfTcpThreads) {
  const auto threads = [](std::string_view value) {
    return parsed(with_pool("transports: {tcp_threads: " + std::string{value} + "}\n"))
        .transports.tcp_threads;
  };
  EXPECT_EQ(threads("auto"), 0U);
  EXPECT_EQ(threads("1"), 1U);
  EXPECT_EQ(threads("64"), 64U);
}

TEST(ParseServer, EveryWordOfEveryChoice) {
  const auto with = [](std::string_view line) { return parsed(with_pool(line)); };
  EXPECT_EQ(with("transports: {rdma: 'off'}").transports.rdma, Availability::kOff);
  EXPECT_EQ(with("transports: {rdma: auto}").transports.rdma, Availability::kAuto);
  EXPECT_EQ(with("transports: {rdma_protection: windows}").transports.rdma_protection,
            RdmaProtection::kWindows);
  EXPECT_EQ(with("transports: {rdma_protection: windows-unchecked}").transports.rdma_protection,
            RdmaProtection::kWindowsUnchecked);
  EXPECT_EQ(with("transports: {shm: required}").transports.shm, Availability::kRequired);
  EXPECT_EQ(parsed("pool: {size: 1MiB, huge_pages: never}").pool.huge_pages, HugePages::kNever);
  EXPECT_EQ(parsed("pool: {size: 1MiB, huge_pages: try}").pool.huge_pages, HugePages::kTry);
  EXPECT_EQ(parsed("pool: {size: 3GiB, huge_pages: 1GiB}").pool.huge_pages,
            HugePages::kRequire1GiB);
  EXPECT_EQ(with("log: {level: debug}").log.level, LogLevel::kDebug);
  EXPECT_EQ(with("log: {level: info}").log.level, LogLevel::kInfo);
  EXPECT_EQ(with("log: {level: warn}").log.level, LogLevel::kWarn);
  EXPECT_EQ(with("log: {level: error}").log.level, LogLevel::kError);
  EXPECT_EQ(with("log: {level: off}").log.level, LogLevel::kOff);
  EXPECT_EQ(with("log: {format: text}").log.format, LogFormat::kText);
  EXPECT_EQ(with("log: {format: json}").log.format, LogFormat::kJson);
  EXPECT_THAT(with("transports: {rdma_device: auto}").transports.rdma_devices, IsEmpty());
  EXPECT_THAT(with("transports: {rdma_device: [auto]}").transports.rdma_devices, IsEmpty());
  EXPECT_THAT(with("transports: {rdma_device: [mlx5_1, mlx5_0]}").transports.rdma_devices,
              ElementsAre("mlx5_1", "mlx5_0"));
  EXPECT_EQ(with("metrics: {address: none}").metrics.address, std::nullopt);
  EXPECT_EQ(with("regions: []").regions.size(), 0U);
}

// yaml-cpp's own conversions would read these as 8, true, a null and a number.
TEST(ParseServer, TheKeyDecidesTheTypeAndNotTheSpelling) {
  const ServerConfig config = parsed(
      with_pool("regions: [{name: 010, size: 4KiB}, {name: yes, size: 4KiB}, {name: 'null', size: "
                "'4096'}, {name: 1e3, size: 4KiB}, {name: true, size: 4KiB, shm: \"true\"}]"));
  ASSERT_EQ(config.regions.size(), 5U);
  EXPECT_EQ(config.regions[0].name, "010");
  EXPECT_EQ(config.regions[1].name, "yes");
  EXPECT_EQ(config.regions[2].name, "null");
  EXPECT_EQ(config.regions[2].size_bytes, 4096U);
  EXPECT_EQ(config.regions[3].name, "1e3");
  EXPECT_EQ(config.regions[4].name, "true");
  EXPECT_TRUE(config.regions[4].shm);
}

TEST(ParseServer, OriginsTellFileLineAndVariables) {
  const ServerConfig config = parse_server(
                                  "pool:\n  size: ${N}MiB\nregions:\n  - name: a\n    "
                                  "size: 4KiB\n    rights: ['${R}', write]\n",
                                  "f.yaml", testing::environment_of({{"N", "1"}, {"R", "read"}}))
                                  .value();
  EXPECT_EQ(config.origins.size(), 4U);
  EXPECT_EQ(config.origins.at("pool.size"), (Origin{"f.yaml", 2, "N"}));
  EXPECT_EQ(config.origins.at("regions[0].name"), (Origin{"f.yaml", 4, ""}));
  EXPECT_EQ(config.origins.at("regions[0].rights"), (Origin{"f.yaml", 6, "R"}));
}

TEST(Environment, ReplacesPartsOfValues) {
  const ServerConfig config =
      parsed("pool: {size: '${SIZE}'}\nlisten: {address: '${A}.${B}'}\nauth: ${AUTH}\n",
             {{"SIZE", "1MiB"}, {"A", "10.0.0"}, {"B", "7"}, {"AUTH", "none"}});
  EXPECT_EQ(config.pool.size_bytes, 1U << 20U);
  EXPECT_EQ(config.listen.address, "10.0.0.7");
}

TEST(Environment, ValueIsTextAndNotYaml) {
  EXPECT_EQ(faults("pool: {size: '${SIZE}'}\n", {{"SIZE", "1MiB, piece: 4KiB"}}),
            "f.yaml:1:14: pool.size: unknown unit 'MiB, piece: 4KiB': the units are B, KiB, MiB, "
            "GiB and TiB\n");
  EXPECT_EQ(faults("pool: {size: '${SIZE}'}\n", {{"SIZE", "${SIZE}"}}),
            "f.yaml:1:14: pool.size: expected a size such as 64GiB, found '${SIZE}'\n");
}

TEST(Environment, UnsetVariableIsNamed) {
  EXPECT_EQ(faults("pool: {size: '${POOL_SIZE}'}\nauth: ${NAMES}\n"),
            "f.yaml:1:14: pool.size: the environment variable POOL_SIZE is not set\n"
            "f.yaml:2:7: auth: the environment variable NAMES is not set\n");
}

TEST(Environment, EmptyVariableIsSet) {
  EXPECT_EQ(faults("pool: {size: '${EMPTY}'}\n", {{"EMPTY", ""}}),
            "f.yaml:1:14: pool.size: expected a size such as 64GiB, found nothing\n");
}

TEST(Environment, MalformedReferences) {
  EXPECT_EQ(faults(with_pool("auth: '${A'\n"), {{"A", "none"}}),
            "f.yaml:2:7: auth: '${' without '}': '$${' writes a literal '${'\n");
  EXPECT_EQ(faults(with_pool("auth: '${A:-none}'\n"), {{"A", "none"}}),
            "f.yaml:2:7: auth: 'A:-none' is no name of an environment variable: letters, digits "
            "and _\n");
  EXPECT_EQ(faults(with_pool("auth: '${}'\n")),
            "f.yaml:2:7: auth: '' is no name of an environment variable: letters, digits and _\n");
  EXPECT_EQ(faults(with_pool("auth: '${1A}'\n")),
            "f.yaml:2:7: auth: '1A' is no name of an environment variable: letters, digits and "
            "_\n");
}

TEST(Environment, DollarsAndEscapesAreLiteral) {
  EXPECT_EQ(faults(with_pool("auth: $A\n")),
            "f.yaml:2:7: auth: must be none or keys, found '$A'\n");
  EXPECT_EQ(faults(with_pool("auth: '$${A}'\n")),
            "f.yaml:2:7: auth: must be none or keys, found '${A}'\n");
  EXPECT_EQ(faults(with_pool("auth: '$$A$'\n")),
            "f.yaml:2:7: auth: must be none or keys, found '$$A$'\n");
}

TEST(Environment, KeysAreNotReplaced) {
  EXPECT_EQ(
      faults(with_pool("${A}: none\n"), {{"A", "auth"}}),
      "f.yaml:2:1: ${A}: unknown key: valid here are listen, transports, rdma, pool, regions, "
      "auth, clients, limits, log, metrics and cluster\n");
}

TEST(Environment, ProcessEnvironmentIsTheDefault) {
  ::setenv("REMORA_CONFIG_TEST_SIZE", "3MiB", 1);
  const auto config = parse_server("pool: {size: '${REMORA_CONFIG_TEST_SIZE}'}", "f.yaml");
  ::unsetenv("REMORA_CONFIG_TEST_SIZE");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->pool.size_bytes, 3U << 20U);
  EXPECT_FALSE(process_environment("REMORA_CONFIG_TEST_SIZE"));
}

class LoadServer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/remora-config-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::string path = (folder_ / name).string();
    std::ofstream{path} << text;
    return path;
  }
  static std::string load_faults(const std::string& path) {
    const auto config = load_server(path);
    return config ? "no fault" : config.error().to_string();
  }

  std::filesystem::path folder_;
};

TEST_F(LoadServer, ReadsAFile) {
  const std::string path = write("ok.yaml", "pool: {size: 1MiB}\n");
  const auto config = load_server(path);
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->origins.at("pool.size"), (Origin{path, 1, ""}));
}

TEST_F(LoadServer, FollowsASymbolicLink) {
  std::filesystem::create_symlink(write("ok.yaml", "pool: {size: 1MiB}\n"), folder_ / "link.yaml");
  EXPECT_EQ(load_faults((folder_ / "link.yaml").string()), "no fault");
}

TEST_F(LoadServer, FaultsNameThePathAsGiven) {
  const std::string path = write("bad.yaml", "pool: {size: 1MB}\n");
  EXPECT_EQ(load_faults(path), path + ":1:14: pool.size: unknown unit 'MB': write 1MiB\n");
}

TEST_F(LoadServer, MissingFile) {
  const std::string path = (folder_ / "none.yaml").string();
  EXPECT_EQ(load_faults(path), path + ": cannot open the file: No such file or directory\n");
}

TEST_F(LoadServer, Directory) {
  EXPECT_EQ(load_faults(folder_.string()),
            folder_.string() + ": a directory: name the file in it\n");
}

TEST_F(LoadServer, PipeWithoutAWriterDoesNotHang) {
  const std::string path = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(load_faults(path), path + ": not a regular file\n");
}

TEST_F(LoadServer, UnreadableFile) {
  const std::string path = write("secret.yaml", "pool: {size: 1MiB}\n");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const bool is_root = ::geteuid() == 0;  // root reads every file
  constexpr uid_t kOtherUser = 65534;
  if (is_root && ::seteuid(kOtherUser) != 0) GTEST_SKIP() << "cannot become another user";
  const std::string found = load_faults(path);
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(found, path + ": cannot open the file: Permission denied\n");
}

TEST_F(LoadServer, EmptyAndImpossibleNames) {
  EXPECT_EQ(load_faults(""), "not a file name\n");
  EXPECT_FALSE(load_server(std::string{"a\0b", 3}));
}

TEST_F(LoadServer, AsManyRegionsAsMayBe) {
  constexpr int kRegionsMax = 65536;
  std::string text = "pool: {size: 1GiB}\nlimits: {regions_max: 65536}\nauth: none\nregions:\n";
  for (int i = 0; i < kRegionsMax; ++i)
    text += "  - {name: the-region-of-client-" + std::to_string(i) + ", size: 4KiB}\n";
  ASSERT_GT(text.size(), 1U << 20U);
  const auto config = load_server(write("many.yaml", text));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->regions.size(), kRegionsMax);
}

TEST_F(LoadServer, TooLargeFile) {
  const std::string path = write("large.yaml", std::string(kFileBytesMax + 5, '#'));
  EXPECT_EQ(load_faults(path), path + ": larger than 8192KiB\n");
}

}  // namespace
}  // namespace remora::config
