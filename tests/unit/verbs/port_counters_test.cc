#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <remora/verbs/port_counters.h>

namespace remora::verbs {
namespace {

namespace fs = std::filesystem;

/// A folder that looks as the kernel's does.
class PortCounters : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "port-counters-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& path, const std::string& text) const {
    const fs::path file = folder_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream{file} << text;
  }
  [[nodiscard]] Result<std::vector<PortCounter>> list(const std::string& device) const {
    return port_counters(device, folder_.string());
  }
  [[nodiscard]] Result<std::uint64_t> read(const std::string& text) const {
    put("counter", text);
    return read_port_counter(
        {.port = 1, .name = "counter", .path = (folder_ / "counter").string()});
  }
  fs::path folder_;
};

TEST_F(PortCounters, AreThoseOfAllPortsByPortAndName) {
  put("mlx5_0/ports/10/hw_counters/b", "3\n");
  put("mlx5_0/ports/2/counters/port_xmit_data", "5\n");
  put("mlx5_0/ports/2/counters/both", "1\n");
  put("mlx5_0/ports/2/hw_counters/both", "2\n");
  put("mlx5_0/ports/2/hw_counters/lifespan", "10\n");
  const auto found = list("mlx5_0").value();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].port, 2);
  EXPECT_EQ(found[0].name, "both");
  EXPECT_EQ(read_port_counter(found[0]).value(), 2U) << "of hw_counters";
  EXPECT_EQ(found[1].name, "port_xmit_data");
  EXPECT_EQ(found[2].port, 10);
  EXPECT_EQ(read_port_counter(found[2]).value(), 3U);
}

TEST_F(PortCounters, DriverWithoutAnyIsEmpty) {
  fs::create_directories(folder_ / "siw0/ports/1");
  EXPECT_TRUE(list("siw0").value().empty());
}

TEST_F(PortCounters, UnknownDeviceIsNotFound) {
  const auto missing = list("mlx5_0");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().subject(), "mlx5_0");
  fs::create_directories(folder_ / "odd/ports/one");
  fs::create_directories(folder_ / "odd/ports/0");
  fs::create_directories(folder_ / "odd/ports/999");
  EXPECT_EQ(list("odd").error().code(), Code::kNotFound) << "no port";
}

TEST_F(PortCounters, NameThatIsNoFilesIsInvalid) {
  for (const char* const name : {"", ".", "..", "../etc", "a/b"})
    EXPECT_EQ(list(name).error().code(), Code::kInvalidArgument) << name;
}

TEST_F(PortCounters, ReadsWholeNumbersOnly) {
  EXPECT_EQ(read("0\n").value(), 0U);
  EXPECT_EQ(read("18446744073709551615\n").value(), UINT64_MAX);
  EXPECT_EQ(read("7").value(), 7U);
  for (const char* const text :
       {"", "\n", "N/A (no PMA)\n", "-1\n", "1 2\n", "0x10\n", "18446744073709551616\n"})
    EXPECT_EQ(read(text).error().code(), Code::kUnsupported) << text;
}

TEST_F(PortCounters, DeviceThatHasGoneIsNotFound) {
  const auto gone = read_port_counter({1, "sent_pkts", (folder_ / "sent_pkts").string()});
  EXPECT_EQ(gone.error().code(), Code::kNotFound);
  EXPECT_EQ(gone.error().system_errno(), ENOENT);
  EXPECT_EQ(gone.error().subject(), "sent_pkts");
}

TEST_F(PortCounters, FolderThatCannotBeReadIsASystemError) {
  EXPECT_EQ(read_port_counter({1, "folder", folder_.string()}).error().code(), Code::kSystem);
}

}  // namespace
}  // namespace remora::verbs
