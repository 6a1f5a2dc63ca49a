// Rules between keys, from a file and on a struct filled by hand.

#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using testing::with_pool;

TEST(AuthRule, RequiredUnlessTheAddressIsLoopback) {
  EXPECT_EQ(faults(with_pool("listen: {port: 1, address: 0.0.0.0}\n")),
            "f.yaml:1:1: auth: required, since listen.address '0.0.0.0' is not a loopback address: "
            "'keys' asks clients for theirs, 'none' lets in every client that can connect\n");
  EXPECT_EQ(faults(with_pool("listen: {address: 0.0.0.0}\nauth: none\n")), "no fault");
  for (const char* const address :
       {"127.0.0.1", "127.9.9.9", "'::1'", "localhost", "'::ffff:127.0.0.1'"})
    EXPECT_EQ(faults(with_pool("listen: {address: " + std::string{address} + "}\n")), "no fault");
  for (const char* const address :
       {"'::'", "10.0.0.1", "storage7", "localhost.example.org", "'::ffff:10.0.0.1'", "'fe80::1'"})
    EXPECT_NE(faults(with_pool("listen: {address: " + std::string{address} + "}\n")), "no fault");
}

TEST(MetricsRule, NeedsAPortOfItsOwn) {
  EXPECT_EQ(faults(with_pool("metrics: {address: '127.0.0.1:7471'}\n")),
            "f.yaml:2:20: metrics.address: the same address and port as listen: the endpoint needs "
            "a port of its own\n");
}

TEST(TransportsRule, OneMustBeOn) {
  EXPECT_EQ(faults(with_pool("transports: {rdma: off, shm: off}\n")), "no fault");
  EXPECT_EQ(faults(with_pool("transports:\n  rdma: off\n  shm: off\n  tcp: off\n")),
            "f.yaml:3:3: transports: every transport is off: turn one on, or clients cannot "
            "connect\n");
}

TEST(TransportsRule, DeviceWithoutRdmaHasNoUse) {
  EXPECT_EQ(faults(with_pool("transports: {rdma: off, rdma_device: mlx5_0}\n")),
            "f.yaml:2:38: transports.rdma_device: has no use while transports.rdma is off: remove "
            "one\n");
}

TEST(PoolRule, WholePages) {
  EXPECT_EQ(faults("pool: {size: 5000, piece: 6KiB}\n"),
            "f.yaml:1:14: pool.size: must be a multiple of 4KiB, found 5000B\n"
            "f.yaml:1:27: pool.piece: must be a multiple of 4KiB, found 6KiB\n");
  EXPECT_EQ(faults("pool: {size: 3MiB, piece: 1MiB, huge_pages: require}\n"),
            "f.yaml:1:14: pool.size: must be a multiple of 2MiB, since huge_pages is 'require', "
            "found 3MiB\n"
            "f.yaml:1:27: pool.piece: must be a multiple of 2MiB, since huge_pages is 'require', "
            "found 1MiB\n");
  EXPECT_EQ(faults("pool: {size: 3MiB, piece: 1MiB, huge_pages: try}\n"), "no fault");
  EXPECT_EQ(faults("pool: {size: 3MiB, piece: 1MiB, huge_pages: 1GiB}\n"),
            "f.yaml:1:14: pool.size: must be a multiple of 1GiB, since huge_pages is '1GiB', "
            "found 3MiB\n"
            "f.yaml:1:27: pool.piece: must be a multiple of 1GiB, since huge_pages is '1GiB', "
            "found 1MiB\n");
  EXPECT_EQ(faults("pool: {size: 3GiB, huge_pages: 1GiB}\n"), "no fault");
}

TEST(PoolRule, BoundedNumberOfPieces) {
  EXPECT_EQ(faults("pool: {size: 256MiB, piece: 4KiB}\n"), "no fault");  // 65536
  EXPECT_EQ(faults("pool: {size: 262148KiB, piece: 4KiB}\n"),
            "f.yaml:1:32: pool.piece: cuts the pool into 65537 pieces, more than 65536: make "
            "pieces larger\n");
  EXPECT_EQ(faults("pool: {size: 64TiB}\n"), "no fault");
}

TEST(RegionRule, BlockIsAPowerOfTwo) {
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 96, block: 96}]\n")),
            "f.yaml:2:38: regions[0].block: must be a power of two, found 96B\n");
}

TEST(RegionRule, SizeIsAMultipleOfTheBlock) {
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 5000}]\n")),
            "f.yaml:2:27: regions[0].size: must be a multiple of the block size 4KiB, found "
            "5000B\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 5000B, block: 8MB}]\n")),
            "f.yaml:2:41: regions[0].block: unknown unit 'MB': write 8MiB\n");
}

TEST(RegionRule, NamesAreDistinct) {
  EXPECT_EQ(faults(with_pool("regions:\n  - {name: a, size: 4KiB}\n  - {name: b, size: 4KiB}\n  - "
                             "{name: a, size: 4KiB}\n")),
            "f.yaml:5:12: regions[2].name: the name 'a' is taken by regions[0] in line 3\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 4KiB}, {name: A, size: 4KiB}]\n")),
            "no fault");
}

TEST(RegionRule, SumFitsThePoolInWholePages) {
  EXPECT_EQ(
      faults("pool:\n  size: 8KiB\nregions: [{name: a, size: 64B, block: 64}, {name: b, size: "
             "4KiB}]\n"),
      "no fault");
  EXPECT_EQ(
      faults("pool:\n  size: 8KiB\nregions: [{name: a, size: 64B, block: 64}, {name: b, size: "
             "8KiB}]\n"),
      "f.yaml:2:9: pool.size: the regions need 12KiB, the pool has 8KiB\n");
  EXPECT_EQ(
      faults("pool:\n  size: 8KiB\nregions: [{name: a, size: 64TiB}, {name: b, size: 64TiB}]\n"),
      "f.yaml:2:9: pool.size: the regions need 128TiB, the pool has 8KiB\n");
  const std::string two_small = "regions: [{name: a, size: 4KiB}, {name: b, size: 4KiB}]\n";
  EXPECT_EQ(faults("pool:\n  size: 2MiB\n  piece: 2MiB\n  huge_pages: require\n" + two_small),
            "f.yaml:2:9: pool.size: the regions need 4MiB of 2MiB pages, the pool has 2MiB\n");
  EXPECT_EQ(faults("pool:\n  size: 4MiB\n  piece: 2MiB\n  huge_pages: require\n" + two_small),
            "no fault");
  EXPECT_EQ(faults("pool:\n  size: 2MiB\n  huge_pages: try\n" + two_small), "no fault");
}

TEST(RegionRule, CountFitsTheLimit) {
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 4KiB}, {name: b, size: 4KiB}]\n"
                             "limits: {regions_max: 1}\n")),
            "f.yaml:3:23: limits.regions_max: the file has 2 regions, more than the 1 allowed\n");
}

TEST(RegionRule, ShmNeedsTheTransport) {
  EXPECT_EQ(
      faults(with_pool("transports: {shm: off}\nregions: [{name: a, size: 4KiB, shm: true}]\n")),
      "f.yaml:3:38: regions[0].shm: is true, but transports.shm is off: turn it on or remove "
      "this\n");
}

TEST(RegionRule, AtomicsOfADeviceNeedIt) {
  EXPECT_EQ(faults(with_pool("transports: {rdma: off}\n"
                             "regions: [{name: a, size: 4KiB, atomics: mlx5_0}]\n")),
            "f.yaml:3:42: regions[0].atomics: names the RDMA device 'mlx5_0', but transports.rdma "
            "is off\n");
  EXPECT_EQ(faults(with_pool("transports: {rdma_device: mlx5_1}\n"
                             "regions: [{name: a, size: 4KiB, atomics: mlx5_0}]\n")),
            "f.yaml:3:42: regions[0].atomics: names the RDMA device 'mlx5_0', but "
            "transports.rdma_device is 'mlx5_1'\n");
  EXPECT_EQ(faults(with_pool("transports: {rdma_device: [mlx5_1, mlx5_2]}\n"
                             "regions: [{name: a, size: 4KiB, atomics: mlx5_0}]\n")),
            "f.yaml:3:42: regions[0].atomics: names the RDMA device 'mlx5_0', but "
            "transports.rdma_device is 'mlx5_1, mlx5_2'\n");
  EXPECT_EQ(faults(with_pool("transports: {rdma_device: [mlx5_1, mlx5_0]}\n"
                             "regions: [{name: a, size: 4KiB, atomics: mlx5_0}]\n")),
            "no fault");
  EXPECT_EQ(faults(with_pool("transports: {rdma: off}\n"
                             "regions: [{name: a, size: 4KiB, atomics: cpu}]\n")),
            "no fault");
}

TEST(RegionRule, AtomicRightContradictsNoAtomics) {
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 4KiB, rights: [read, atomic], atomics: "
                             "none}]\n")),
            "f.yaml:2:41: regions[0].rights: names 'atomic', but the region's atomics are "
            "'none'\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 4KiB, atomics: none}]\n")), "no fault");
}

// A value that could not be read must not make rules complain about its default.
TEST(Rules, DoNotFollowFromBadValues) {
  EXPECT_EQ(faults("pool: {size: 1MB}\nregions: [{name: a, size: 1TiB}]\n"),
            "f.yaml:1:14: pool.size: unknown unit 'MB': write 1MiB\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 1TB}, {name: b, size: 1TiB}]\n")),
            "f.yaml:2:27: regions[0].size: unknown unit 'TB': write 1TiB\n");
  EXPECT_EQ(faults(with_pool("listen: {address: '10.0.0.300'}\n")),
            "f.yaml:2:19: listen.address: must be an IPv4 or IPv6 address or a host name, found "
            "'10.0.0.300'\n");
  EXPECT_EQ(faults(with_pool("listen: {address: 0.0.0.0}\nauth: psk\n")),
            "f.yaml:3:7: auth: must be none or keys, found 'psk'\n");
  EXPECT_EQ(faults("pool: 1MiB\nregions: [{name: a, size: 4KiB}]\n"),
            "f.yaml:1:7: pool: expected a map with the keys size, piece, huge_pages, "
            "populate, core_dump and warm_restart, found text\n");
}

ServerConfig by_hand() {
  ServerConfig config;
  config.pool.size_bytes = 1U << 20U;
  return config;
}

TEST(Validate, DefaultsWithAPoolAreValid) {
  EXPECT_EQ(validate(by_hand()).to_string(), "");
  ServerConfig config = by_hand();
  config.regions.push_back({.name = "a", .size_bytes = 4096});
  EXPECT_EQ(validate(config).to_string(), "");
}

TEST(Validate, PoolSizeMustBeGiven) {
  EXPECT_EQ(validate(ServerConfig{}).to_string(), "pool.size: must be 4KiB to 64TiB, found 0B\n");
}

TEST(Validate, AppliesRangesAndRules) {
  ServerConfig config = by_hand();
  config.listen = {"0.0.0.0", 0};
  config.pool.piece_bytes = 2ULL << 30U;
  config.regions.push_back({.name = "a/b", .size_bytes = 100});
  config.regions.push_back({.name = "c", .size_bytes = 4096, .rights = {false, false, false}});
  config.limits.request_timeout = std::chrono::nanoseconds{-1};
  config.metrics.address = "nowhere";
  EXPECT_EQ(validate(config).to_string(),
            "pool.piece: must be 4KiB to 1GiB, found 2GiB\n"
            "regions[0].name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not . or .., found 'a/b'\n"
            "regions[1].rights: empty: name at least one of read, write and atomic\n"
            "limits.request_timeout: must be 100ms to 1h, found -1ns\n"
            "metrics.address: must be none, HOST:PORT or [IPv6]:PORT, found 'nowhere'\n"
            "auth: required, since listen.address '0.0.0.0' is not a loopback address: 'keys' "
            "asks clients for theirs, 'none' lets in every client that can connect\n"
            "regions[0].size: must be a multiple of the block size 4KiB, found 100B\n");
}

TEST(Validate, AppliesRulesBetweenKeys) {
  ServerConfig config = by_hand();
  config.regions.push_back({.name = "a", .size_bytes = 2U << 20U});
  config.regions.push_back({.name = "a", .size_bytes = 4096});
  EXPECT_EQ(validate(config).to_string(),
            "regions[1].name: the name 'a' is taken by regions[0]\n"
            "pool.size: the regions need 2052KiB, the pool has 1MiB\n");
}

TEST(Validate, EnumeratorsThatDoNotExist) {
  ServerConfig config = by_hand();
  config.transports.rdma = static_cast<Availability>(9);
  config.pool.huge_pages = static_cast<HugePages>(9);
  config.auth = static_cast<Auth>(9);
  config.log.level = static_cast<LogLevel>(9);
  config.log.format = static_cast<LogFormat>(9);
  EXPECT_EQ(validate(config).size(), 5U);
}

TEST(Validate, ExtremesDoNotOverflow) {
  ServerConfig config = by_hand();
  config.pool.size_bytes = std::numeric_limits<std::uint64_t>::max();
  config.pool.piece_bytes = 0;
  config.regions.push_back({.name = "a", .size_bytes = std::numeric_limits<std::uint64_t>::max()});
  config.regions.push_back({.name = "b", .size_bytes = 4096, .block_bytes = 0});
  EXPECT_EQ(validate(config).size(), 4U);
}

TEST(Validate, TooManyRegions) {
  ServerConfig config = by_hand();
  config.regions.resize(65537);
  EXPECT_EQ(validate(config).to_string(), "regions: at most 65536, found 65537\n");
}

TEST(ParseEndpoint, SplitsHostAndPort) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:9471").value(), (Endpoint{"10.0.0.1", 9471}));
  EXPECT_EQ(parse_endpoint("[::1]:9471").value(), (Endpoint{"::1", 9471}));
  EXPECT_EQ(parse_endpoint("storage7:1").value(), (Endpoint{"storage7", 1}));
}

TEST(ParseEndpoint, ErrorCarriesTheText) {
  const auto endpoint = parse_endpoint("::1:9471");
  ASSERT_FALSE(endpoint);
  EXPECT_EQ(endpoint.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(endpoint.error().subject(), "::1:9471");
}

TEST(IsLoopback, LiteralsAndLocalhost) {
  EXPECT_TRUE(is_loopback("127.255.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_TRUE(is_loopback("LocalHost"));
  EXPECT_FALSE(is_loopback(""));
  EXPECT_FALSE(is_loopback("128.0.0.1"));
  EXPECT_FALSE(is_loopback("127.0.0.1.example.org"));
  EXPECT_FALSE(is_loopback(std::string_view{"127.0.0.1\0x", 11}));
}

}  // namespace
}  // namespace remora::config
