// What a single key can get wrong, each fault with its exact place. Rules between keys: rules_test.

#include <gtest/gtest.h>
#include <string>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using testing::with_pool;

TEST(UnknownKey, NamesTheNearestValidKey) {
  EXPECT_EQ(faults(with_pool("listen:\n  prot: 7471\n")),
            "f.yaml:3:3: listen.prot: unknown key: did you mean 'port'?\n");
  EXPECT_EQ(faults(with_pool("metrisc: {address: none}\n")),
            "f.yaml:2:1: metrisc: unknown key: did you mean 'metrics'?\n");
  EXPECT_EQ(faults("pool: {size: 1MiB, hugepages: try}\n"),
            "f.yaml:1:20: pool.hugepages: unknown key: did you mean 'huge_pages'?\n");
  EXPECT_EQ(faults(with_pool("regions:\n  - {name: a, size: 4KiB, blok: 4KiB}\n")),
            "f.yaml:3:27: regions[0].blok: unknown key: did you mean 'block'?\n");
}

TEST(UnknownKey, NamesTheMapThatHasIt) {
  EXPECT_EQ(faults(with_pool("port: 7471\n")),
            "f.yaml:2:1: port: unknown key: did you mean 'listen.port'?\n");
  EXPECT_EQ(faults(with_pool("listen.port: 7471\n")),
            "f.yaml:2:1: listen.port: unknown key: did you mean 'listen.port'?\n");
}

TEST(UnknownKey, ListsValidOnesWhenNoneIsNear) {
  EXPECT_EQ(faults(with_pool("log: {colour: red}\n")),
            "f.yaml:2:7: log.colour: unknown key: valid here are level and format\n");
  // `address` and `size` stand in two maps each: naming one of them would be a guess.
  EXPECT_EQ(faults(with_pool("log: {address: a}\n")),
            "f.yaml:2:7: log.address: unknown key: valid here are level and format\n");
}

TEST(UnknownKey, MeantForARequiredOneIsOneFault) {
  EXPECT_EQ(faults("pool: {sise: 1MiB}\n"),
            "f.yaml:1:8: pool.sise: unknown key: did you mean 'size'?\n");
  EXPECT_EQ(faults("pol: {size: 1MiB}\n"), "f.yaml:1:1: pol: unknown key: did you mean 'pool'?\n");
}

TEST(UnknownKey, OddOnesArePrintedSafely) {
  EXPECT_EQ(faults(with_pool("\"a\\nb\\e\": 1\n")),
            "f.yaml:2:1: a\\nb\\x1b: unknown key: valid here are listen, transports, rdma, "
            "pool, "
            "regions, auth, "
            "clients, limits, log, metrics and cluster\n");
  EXPECT_TRUE(faults(with_pool("\"" + std::string(1000, 'k') + "\": 1\n"))
                  .starts_with("f.yaml:2:1: " + std::string(60, 'k') + "...: unknown key"));
}

TEST(DuplicateKey, TellsBothLines) {
  EXPECT_EQ(faults("pool:\n  size: 1MiB\n  piece: 4KiB\n  size: 2MiB\n"),
            "f.yaml:4:3: pool.size: duplicate key, first written in line 2\n");
  EXPECT_EQ(faults(with_pool("auth: none\npool: {size: 2MiB}\n")),
            "f.yaml:3:1: pool: duplicate key, first written in line 1\n");
  EXPECT_EQ(faults(with_pool("regions:\n  - {name: a, size: 4KiB, name: b}\n")),
            "f.yaml:3:27: regions[0].name: duplicate key, first written in line 3\n");
}

TEST(DuplicateKey, QuotesMakeNoDifference) {
  EXPECT_EQ(faults(with_pool("auth: none\n'auth': none\n")),
            "f.yaml:3:1: auth: duplicate key, first written in line 2\n");
}

TEST(DuplicateKey, OfAnUnknownKeyToo) {
  EXPECT_EQ(faults(with_pool("log: {colour: 1, colour: 2}\n")),
            "f.yaml:2:7: log.colour: unknown key: valid here are level and format\n"
            "f.yaml:2:18: log.colour: duplicate key, first written in line 2\n");
}

TEST(OddKey, MustBeText) {
  EXPECT_EQ(faults(with_pool("? [a]\n: b\n")), "f.yaml:2:3: ?: a key must be text, found a list\n");
  EXPECT_EQ(faults(with_pool("log: {~: 1}\n")),
            "f.yaml:2:7: log.?: a key must be text, found nothing\n");
}

TEST(MissingKey, RequiredOnesAreNamed) {
  EXPECT_EQ(faults("auth: none\n"), "f.yaml:1:1: pool.size: required: 4KiB to 64TiB\n");
  EXPECT_EQ(faults("pool:\n  piece: 4KiB\n"), "f.yaml:2:3: pool.size: required: 4KiB to 64TiB\n");
  EXPECT_EQ(faults(with_pool("regions:\n  - shm: true\n")),
            "f.yaml:3:5: regions[0].name: required: 1 to 64 of A-Z a-z 0-9 . _ -, not . or ..\n"
            "f.yaml:3:5: regions[0].size: required: 64B to 64TiB\n");
}

TEST(NoValue, IsAFaultOnItsKey) {
  EXPECT_EQ(faults(with_pool("auth:\n")),
            "f.yaml:2:1: auth: has no value: give it one or remove the key\n");
  EXPECT_EQ(faults(with_pool("limits:\n  # all commented out\nlog: ~\n")),
            "f.yaml:2:1: limits: has no value: give it one or remove the key\n"
            "f.yaml:4:1: log: has no value: give it one or remove the key\n");
  EXPECT_EQ(faults(with_pool("regions:\n  -\n")),
            "f.yaml:3:3: regions[0]: expected a map with the keys name, size, block, rights, "
            "atomics, shm and access, found nothing\n");
}

TEST(WrongKind, MapListAndText) {
  EXPECT_EQ(faults(with_pool("listen: 127.0.0.1\n")),
            "f.yaml:2:9: listen: expected a map with the keys address and port, found text\n");
  EXPECT_EQ(faults(with_pool("listen:\n  - port: 1\n")),
            "f.yaml:3:3: listen: expected a map with the keys address and port, found a list\n");
  EXPECT_EQ(faults(with_pool("regions:\n  name: a\n")),
            "f.yaml:3:3: regions: expected a list of maps, found a map\n");
  EXPECT_EQ(faults(with_pool("regions: [a]\n")),
            "f.yaml:2:11: regions[0]: expected a map with the keys name, size, block, rights, "
            "atomics, shm and access, found text\n");
  EXPECT_EQ(faults("pool: {size: [1MiB]}\n"),
            "f.yaml:1:14: pool.size: expected a single value (4KiB to 64TiB), found a list\n");
  EXPECT_EQ(faults(with_pool("auth: {none: 1}\n")),
            "f.yaml:2:7: auth: expected a single value (none or keys), found a map\n");
}

TEST(Boolean, OnlyTrueAndFalse) {
  for (const char* const text : {"yes", "no", "on", "off", "True", "TRUE", "1", "0", "y", "t"})
    EXPECT_EQ(
        faults("pool: {size: 1MiB, populate: " + std::string{text} + "}"),
        "f.yaml:1:30: pool.populate: expected true or false, found '" + std::string{text} + "'\n");
  EXPECT_EQ(faults("pool: {size: 1MiB, populate: ''}"),
            "f.yaml:1:30: pool.populate: expected true or false, found ''\n");
}

TEST(Number, DecimalAndInRange) {
  const auto port = [](const std::string& text) {
    return faults(with_pool("listen: {port: " + text + "}\n"));
  };
  EXPECT_EQ(port("1"), "no fault");
  EXPECT_EQ(port("65535"), "no fault");
  EXPECT_EQ(port("0"), "no fault");
  EXPECT_EQ(port("65536"), "f.yaml:2:16: listen.port: must be 0 to 65535, found 65536\n");
  EXPECT_EQ(port("-1"),
            "f.yaml:2:16: listen.port: expected a whole number such as 16, found '-1'\n");
  EXPECT_EQ(port("010"),
            "f.yaml:2:16: listen.port: '010' has a leading zero: numbers are decimal, write it "
            "without\n");
  EXPECT_EQ(port("0x1D2F"), "f.yaml:2:16: listen.port: expected a whole number without a unit\n");
  EXPECT_EQ(port("7471.0"), "f.yaml:2:16: listen.port: '7471.0' is not a whole number\n");
  EXPECT_EQ(port("1e3"), "f.yaml:2:16: listen.port: '1e3' is not a whole number\n");
  EXPECT_EQ(port("99999999999999999999"),
            "f.yaml:2:16: listen.port: '99999999999999999999' is too large: at most "
            "18446744073709551615\n");
  EXPECT_EQ(port(".inf"),
            "f.yaml:2:16: listen.port: expected a whole number such as 16, found '.inf'\n");
}

TEST(Number, EveryLimitHasBothEnds) {
  for (const char* const key : {"sessions_max", "regions_max", "session_regions_max"}) {
    const auto with = [key](const char* value) {
      return faults(with_pool("limits: {" + std::string{key} + ": " + value + "}\n"));
    };
    EXPECT_EQ(with("1"), "no fault");
    EXPECT_EQ(with("65536"), "no fault");
    EXPECT_TRUE(with("0").ends_with("must be 1 to 65536, found 0\n")) << with("0");
    EXPECT_TRUE(with("65537").ends_with("must be 1 to 65536, found 65537\n")) << with("65537");
  }
}

TEST(Size, TypedAndInRange) {
  EXPECT_EQ(faults("pool: {size: 256MB}\n"),
            "f.yaml:1:14: pool.size: unknown unit 'MB': write 256MiB\n");
  EXPECT_EQ(faults("pool: {size: 0}\n"),
            "f.yaml:1:14: pool.size: must be 4KiB to 64TiB, found 0B\n");
  EXPECT_EQ(faults("pool: {size: 65TiB}\n"),
            "f.yaml:1:14: pool.size: must be 4KiB to 64TiB, found 65TiB\n");
  EXPECT_EQ(faults("pool: {size: 1MiB, piece: 2GiB}\n"),
            "f.yaml:1:27: pool.piece: must be 4KiB to 1GiB, found 2GiB\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 32B, block: 32}]\n")),
            "f.yaml:2:27: regions[0].size: must be 64B to 64TiB, found 32B\n"
            "f.yaml:2:39: regions[0].block: must be 64B to 16MiB, found 32B\n");
  EXPECT_EQ(faults("pool: {size: 1GiB}\nregions: [{name: a, size: 64MiB, block: 32MiB}]\n"),
            "f.yaml:2:41: regions[0].block: must be 64B to 16MiB, found 32MiB\n");
}

TEST(Duration, TypedAndInRange) {
  EXPECT_EQ(faults(with_pool("limits: {request_timeout: 5}\n")),
            "f.yaml:2:27: limits.request_timeout: '5' has no unit: the units are ns, us, ms, s, m "
            "and h\n");
  EXPECT_EQ(faults(with_pool("limits: {request_timeout: 99ms}\n")),
            "f.yaml:2:27: limits.request_timeout: must be 100ms to 1h, found 99ms\n");
  EXPECT_EQ(faults(with_pool("limits: {handshake_timeout: 11m}\n")),
            "f.yaml:2:29: limits.handshake_timeout: must be 100ms to 10m, found 11m\n");
  EXPECT_EQ(faults(with_pool("limits: {drain_timeout: 61m}\n")),
            "f.yaml:2:25: limits.drain_timeout: must be 0s to 1h, found 61m\n");
  EXPECT_EQ(faults(with_pool("limits: {revoke_grace: 0s}\n")),
            "f.yaml:2:24: limits.revoke_grace: must be 1ms to 1m, found 0s\n");
}

TEST(Choice, ListsTheWords) {
  EXPECT_EQ(faults(with_pool("transports: {rdma: true}\n")),
            "f.yaml:2:20: transports.rdma: must be off, auto or required, found 'true'\n");
  EXPECT_EQ(faults(with_pool("transports: {shm: Auto}\n")),
            "f.yaml:2:19: transports.shm: must be off, auto or required, found 'Auto'\n");
  EXPECT_EQ(faults("pool: {size: 1MiB, huge_pages: yes}\n"),
            "f.yaml:1:32: pool.huge_pages: must be never, try, require or 1GiB, found 'yes'\n");
  EXPECT_EQ(faults(with_pool("log: {level: warning}\n")),
            "f.yaml:2:14: log.level: must be trace, debug, info, warn, error or off, found "
            "'warning'\n");
  EXPECT_EQ(faults(with_pool("log: {format: xml}\n")),
            "f.yaml:2:15: log.format: must be text or json, found 'xml'\n");
  EXPECT_EQ(faults(with_pool("auth: psk\n")),
            "f.yaml:2:7: auth: must be none or keys, found 'psk'\n");
}

TEST(Rights, ListOfDistinctWords) {
  const auto rights = [](const std::string& text) {
    return faults(with_pool("regions: [{name: a, size: 4KiB, rights: " + text + "}]\n"));
  };
  EXPECT_EQ(rights("[read]"), "no fault");
  EXPECT_EQ(rights("[atomic, write, read]"), "no fault");
  EXPECT_EQ(rights("[]"),
            "f.yaml:2:41: regions[0].rights: empty: name at least one of read, write and atomic\n");
  EXPECT_EQ(rights("read"),
            "f.yaml:2:41: regions[0].rights: expected a list, such as [read], found text\n");
  EXPECT_EQ(rights("[read, read]"), "f.yaml:2:41: regions[0].rights: 'read' stands there twice\n");
  EXPECT_EQ(rights("[read, execute]"),
            "f.yaml:2:41: regions[0].rights: must be one or more of read, write and atomic, found "
            "'execute'\n");
  EXPECT_EQ(rights("[read, [write]]"),
            "f.yaml:2:48: regions[0].rights: expected one or more of read, write and atomic, found "
            "a list\n");
}

TEST(RegionName, Syntax) {
  const auto name = [](const std::string& text) {
    return faults(with_pool("regions: [{name: '" + text + "', size: 4KiB}]\n"));
  };
  EXPECT_EQ(name(std::string(64, 'n')), "no fault");
  EXPECT_EQ(name("-"), "no fault");
  EXPECT_EQ(name("..."), "no fault");
  for (const std::string& text :
       {std::string(65, 'n'), std::string{}, std::string{"a/b"}, std::string{"."},
        std::string{".."}, std::string{"a b"}, std::string{"\xc3\xa9"}, std::string{"a?b"}})
    EXPECT_TRUE(name(text).starts_with(
        "f.yaml:2:18: regions[0].name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not . or .., found '"))
        << name(text);
}

TEST(ListenAddress, Syntax) {
  const auto address = [](const std::string& text) {
    return faults(with_pool("auth: none\nlisten: {address: '" + text + "'}\n"));
  };
  for (const char* const text : {"127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost",
                                 "storage7", "storage-7.example.org", "my_host", "7storage"})
    EXPECT_EQ(address(text), "no fault") << text;
  for (const std::string& text :
       {std::string{}, std::string{"10.0.0.300"}, std::string{"10.0.0"}, std::string{"a..b"},
        std::string{"-a"}, std::string{"a-"}, std::string{"a."}, std::string{"a b"},
        std::string{"[::1]"}, std::string{"host:7471"}, std::string{"fe80::1%"},
        std::string{"::1::"}, std::string(64, 'a'), std::string(300, 'a')})
    EXPECT_TRUE(address(text).starts_with(
        "f.yaml:3:19: listen.address: must be an IPv4 or IPv6 address or a host name, found '"))
        << address(text);
}

TEST(MetricsAddress, Syntax) {
  const auto address = [](const std::string& text) {
    return faults(with_pool("metrics: {address: '" + text + "'}\n"));
  };
  for (const char* const text : {"none", "127.0.0.1:9471", "0.0.0.0:1", "[::1]:65535",
                                 "localhost:80", "[fe80::1%eth0]:9471"})
    EXPECT_EQ(address(text), "no fault") << text;
  for (const char* const text :
       {"", "9471", ":9471", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:09471", "::1:9471", "[::1]", "[localhost]:80", "http://localhost:80", "[]:80"})
    EXPECT_TRUE(address(text).starts_with(
        "f.yaml:2:20: metrics.address: must be none, HOST:PORT or [IPv6]:PORT, found '"))
        << address(text);
}

TEST(TcpThreads, Syntax) {
  for (const char* const text : {"0", "65", "-1", "4x", "many", "''", "4.0"})
    EXPECT_TRUE(faults(with_pool("transports: {tcp_threads: " + std::string{text} + "}\n"))
                    .starts_with("f.yaml:2:27: transports.tcp_threads: must be auto, or 1 to 64, "
                                 "found '"))
        << text;
}

TEST(DeviceName, Syntax) {
  EXPECT_EQ(
      faults(with_pool("transports: {rdma_device: mlx5/0}\n")),
      "f.yaml:2:27: transports.rdma_device: must be auto, the name of an RDMA device, or a list of "
      "names, found 'mlx5/0'\n");
  EXPECT_EQ(faults(with_pool("regions: [{name: a, size: 4KiB, atomics: 'a b'}]\n")),
            "f.yaml:2:42: regions[0].atomics: must be auto, none, cpu or the name of an RDMA "
            "device, found 'a b'\n");
  EXPECT_EQ(faults(with_pool("transports: {rdma_device: " + std::string(63, 'd') + "}\n")),
            "no fault");
  EXPECT_NE(faults(with_pool("transports: {rdma_device: " + std::string(64, 'd') + "}\n")),
            "no fault");
}

TEST(DeviceNames, EachFaultStandsAtItsElement) {
  const auto devices = [](const std::string& value) {
    return faults(with_pool("transports: {rdma_device: " + value + "}\n"));
  };
  EXPECT_EQ(devices("[mlx5_0, mlx5_1]"), "no fault");
  EXPECT_EQ(devices("[mlx5_0, mlx5_0]"),
            "f.yaml:2:36: transports.rdma_device: 'mlx5_0' stands there twice\n");
  EXPECT_EQ(devices("[mlx5_0, 'a b']"),
            "f.yaml:2:36: transports.rdma_device: must be auto, the name of an RDMA device, or a "
            "list of names, found 'a b'\n");
  EXPECT_EQ(devices("[mlx5_0, auto]"),
            "f.yaml:2:36: transports.rdma_device: 'auto' stands alone, not in a list with "
            "others\n");
  EXPECT_EQ(devices("[mlx5_0, {}]"),
            "f.yaml:2:36: transports.rdma_device: expected a name, found a map\n");
  EXPECT_EQ(devices("[]"),
            "f.yaml:2:27: transports.rdma_device: empty: must be auto, the name of an RDMA device, "
            "or a list of names\n");
  EXPECT_EQ(devices("{a: b}"),
            "f.yaml:2:27: transports.rdma_device: expected a single value or a list (auto, the "
            "name of an RDMA device, or a list of names), found a map\n");
}

TEST(Regions, AtMost65536) {
  std::string text = "pool: {size: 4KiB}\nregions: [";
  for (int i = 0; i <= 65536; ++i) text.append("a,");
  EXPECT_EQ(faults(text + "]"), "f.yaml:2:10: regions: at most 65536, found 65537\n");
}

TEST(ManyFaults, AllAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(faults(R"(# A file with a fault in almost every line.
listen:
  adress: 0.0.0.0
  port: 70000
transports: {rdma: yes, shm: off}
pool:
  size: 1GB
  size: 2GiB
regions:
  - name: a b
    size: 100
    shm: true
  - size: 4KiB
    colour: red
log:
)"),
            "f.yaml:3:3: listen.adress: unknown key: did you mean 'address'?\n"
            "f.yaml:4:9: listen.port: must be 0 to 65535, found 70000\n"
            "f.yaml:5:20: transports.rdma: must be off, auto or required, found 'yes'\n"
            "f.yaml:7:9: pool.size: unknown unit 'GB': write 1GiB\n"
            "f.yaml:8:3: pool.size: duplicate key, first written in line 7\n"
            "f.yaml:10:11: regions[0].name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not . or .., "
            "found 'a b'\n"
            "f.yaml:11:11: regions[0].size: must be a multiple of the block size 4KiB, found "
            "100B\n"
            "f.yaml:12:10: regions[0].shm: is true, but transports.shm is off: turn it on or "
            "remove this\n"
            "f.yaml:13:5: regions[1].name: required: 1 to 64 of A-Z a-z 0-9 . _ -, not . or ..\n"
            "f.yaml:14:5: regions[1].colour: unknown key: valid here are name, size, block, "
            "rights, atomics, shm and access\n"
            "f.yaml:15:1: log: has no value: give it one or remove the key\n");
}

}  // namespace
}  // namespace remora::config
