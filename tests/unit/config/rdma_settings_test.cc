// The settings of the fabric: in the file, by hand, and by their names.

#include <gtest/gtest.h>
#include <string>

#include <remora/config/describe.h>
#include <remora/config/rdma_settings.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using testing::parsed;
using testing::with_pool;

RdmaSettings from_file(const std::string& settings) {
  return parsed(with_pool("rdma: {" + settings + "}\n")).rdma;
}

TEST(RdmaSettingsInTheFile, NothingIsSetByDefault) {
  EXPECT_EQ(parsed(with_pool("")).rdma, RdmaSettings{});
  EXPECT_EQ(to_string(RdmaSettings{}), "");
}

TEST(RdmaSettingsInTheFile, ZeroIsAValueOfItsOwn) {
  const RdmaSettings settings = from_file("traffic_class: 0, service_level: 0, retry_count: 0");
  EXPECT_EQ(settings.traffic_class, 0);
  EXPECT_EQ(settings.service_level, 0);
  EXPECT_EQ(settings.retry_count, 0);
  EXPECT_FALSE(settings.rnr_retry);
}

TEST(RdmaSettingsInTheFile, PartitionKeysAreHexadecimalOrDecimal) {
  EXPECT_EQ(from_file("pkey: 0x8001").pkey, 0x8001);
  EXPECT_EQ(from_file("pkey: 0xFFFF").pkey, 0xffff);
  EXPECT_EQ(from_file("pkey: 32769").pkey, 0x8001);
}

TEST(RdmaSettingsInTheFile, ValuesOutOfRangeAreNamedWithTheirPlace) {
  EXPECT_EQ(faults(with_pool("rdma: {mtu: 1000}\n")),
            "f.yaml:2:13: rdma.mtu: must be 256, 512, 1024, 2048 or 4096, found '1000'\n");
  EXPECT_EQ(faults(with_pool("rdma:\n  traffic_class: 256\n")),
            "f.yaml:3:18: rdma.traffic_class: must be 0 to 255, found 256\n");
  EXPECT_EQ(faults(with_pool("rdma: {pkey: 0}\n")),
            "f.yaml:2:14: rdma.pkey: must be 1 to 0xffff, such as 0x8001, found '0'\n");
  for (const char* wrong :
       {"service_level: 16", "gid_index: 256", "timeout: 0", "timeout: 32", "retry_count: 8",
        "rnr_retry: 8", "pkey: 0x10000", "pkey: 0x", "pkey: mlx5", "mtu: 8192", "mtu: -1"})
    EXPECT_NE(faults(with_pool(std::string{"rdma: {"} + wrong + "}\n")), "") << wrong;
}

TEST(RdmaSettingsInTheFile, ShowPrintsWhatIsSetAndThatTheOthersAreNot) {
  const std::string text = show(parsed(with_pool("rdma: {pkey: 32769, mtu: 1024}\n")));
  EXPECT_NE(text.find("  pkey: 0x8001"), std::string::npos) << text;
  EXPECT_NE(text.find("  mtu: 1024"), std::string::npos) << text;
  EXPECT_NE(text.find("  # timeout:"), std::string::npos) << text;
}

TEST(RdmaSettingsByHand, RangesAreChecked) {
  ServerConfig config;
  config.pool.size_bytes = 1ULL << 20U;
  config.rdma.mtu = 1024;
  EXPECT_TRUE(validate(config).empty());
  config.rdma.mtu = 1000;
  config.rdma.timeout = 0;
  EXPECT_EQ(validate(config).size(), 2U);
  const Status checked = check(config.rdma);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(checked.error().subject(), "mtu=1000");
  EXPECT_TRUE(check(RdmaSettings{.service_level = 15, .pkey = 1, .timeout = 31}));
}

TEST(RdmaSettingsByName, SetAndPrintedInOneOrder) {
  RdmaSettings settings;
  for (const auto& [name, value] : {std::pair{"rnr_retry", "7"},
                                    {"retry_count", "1"},
                                    {"timeout", "20"},
                                    {"mtu", "4096"},
                                    {"gid_index", "3"},
                                    {"pkey", "0xffff"},
                                    {"service_level", "3"},
                                    {"traffic_class", "106"}}) {
    EXPECT_TRUE(is_rdma_setting(name));
    EXPECT_TRUE(set_rdma_setting(settings, name, value)) << name;
  }
  EXPECT_EQ(to_string(settings, "&"),
            "traffic_class=106&service_level=3&pkey=0xffff&gid_index=3&mtu=4096&timeout=20&"
            "retry_count=1&rnr_retry=7");
}

TEST(RdmaSettingsByName, OthersAreRefused) {
  RdmaSettings settings;
  EXPECT_FALSE(is_rdma_setting("tos"));
  EXPECT_EQ(set_rdma_setting(settings, "tos", "1").error().code(), Code::kNotFound);
  for (const char* wrong : {"", "-1", "256", "0x6a", " 6", "6 ", "70000"}) {
    const Status set = set_rdma_setting(settings, "traffic_class", wrong);
    ASSERT_FALSE(set) << wrong;
    EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(set.error().subject(), std::string{"traffic_class="} + wrong);
  }
  EXPECT_EQ(settings, RdmaSettings{});
}

TEST(RdmaSettingsDefaults, FillWhatIsOpen) {
  const RdmaSettings base{.traffic_class = 8, .mtu = 4096};
  const RdmaSettings made = with_defaults({.traffic_class = 0, .timeout = 20}, base);
  EXPECT_EQ(made, (RdmaSettings{.traffic_class = 0, .mtu = 4096, .timeout = 20}));
}

}  // namespace
}  // namespace remora::config
