#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include <remora/config/memory_limit.h>

namespace remora::config {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1U << 20U;

/// A tree of control groups as the kernel shows it.
class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "remora-cgroup.XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    files_ = {folder + "/self", folder + "/fs"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file{folder_ + "/" + path};
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file} << text << '\n';
  }
  [[nodiscard]] std::string fs(const std::string& path) const { return files_.root + path; }

  std::string folder_;
  CgroupFiles files_;
};

TEST_F(MemoryLimitTest, NoneWhereNothingIsSaid) {
  EXPECT_FALSE(memory_limit(files_));
  write("self", "0::/a");
  EXPECT_FALSE(memory_limit(files_));
  write("fs/a/memory.max", "max");
  EXPECT_FALSE(memory_limit(files_));
}

TEST_F(MemoryLimitTest, VersionTwoIsThatOfTheOwnGroup) {
  write("self", "0::/system.slice/remora-server.service");
  write("fs/system.slice/remora-server.service/memory.max", std::to_string(64 * kMiB));
  write("fs/system.slice/remora-server.service/memory.current", std::to_string(24 * kMiB));
  const auto limit = memory_limit(files_);
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->file, fs("/system.slice/remora-server.service/memory.max"));
  EXPECT_EQ(limit->limit_bytes, 64 * kMiB);
  EXPECT_EQ(limit->left_bytes(), 40 * kMiB);
}

TEST_F(MemoryLimitTest, CachedFilesAreNotUsed) {
  write("self", "0::/a");
  write("fs/a/memory.max", std::to_string(64 * kMiB));
  write("fs/a/memory.current", std::to_string(60 * kMiB));
  write("fs/a/memory.stat", "anon 1\ninactive_file " + std::to_string(30 * kMiB) +
                                "\nactive_file " + std::to_string(10 * kMiB) + "\nshmem 7");
  EXPECT_EQ(memory_limit(files_)->used_bytes, 20 * kMiB);
}

TEST_F(MemoryLimitTest, GroupAboveMayLeaveLess) {
  write("self", "0::/a/b/c");
  write("fs/a/b/c/memory.max", std::to_string(64 * kMiB));
  write("fs/a/b/memory.max", "max");
  write("fs/a/memory.max", std::to_string(128 * kMiB));
  write("fs/a/memory.current", std::to_string(100 * kMiB));
  const auto limit = memory_limit(files_);
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->file, fs("/a/memory.max"));
  EXPECT_EQ(limit->left_bytes(), 28 * kMiB);
}

TEST_F(MemoryLimitTest, ContainerSeesItsGroupAsTheRoot) {
  write("fs/memory.max", std::to_string(64 * kMiB));
  for (const char* path : {"0::/", "0::/docker/0123", "0::/../other"}) {
    write("self", path);
    const auto limit = memory_limit(files_);
    ASSERT_TRUE(limit) << path;
    EXPECT_EQ(limit->file, fs("/memory.max"));
  }
}

TEST_F(MemoryLimitTest, VersionOneIsThatOfTheController) {
  write("self", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/a/b\n0::/");
  write("fs/memory/a/b/memory.limit_in_bytes", "9223372036854771712");
  write("fs/memory/a/memory.limit_in_bytes", std::to_string(64 * kMiB));
  write("fs/memory/a/memory.usage_in_bytes", std::to_string(50 * kMiB));
  write("fs/memory/a/memory.stat",
        "inactive_file 5\ntotal_inactive_file " + std::to_string(10 * kMiB));
  const auto limit = memory_limit(files_);
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->file, fs("/memory/a/memory.limit_in_bytes"));
  EXPECT_EQ(limit->left_bytes(), 24 * kMiB);
}

TEST_F(MemoryLimitTest, LargerPoolIsWarnedOf) {
  write("self", "0::/a");
  write("fs/a/memory.max", std::to_string(64 * kMiB));
  ServerConfig config;
  config.pool.size_bytes = 64 * kMiB;
  config.pool.huge_pages = HugePages::kNever;
  EXPECT_FALSE(exceeded_memory_limit(config, files_));
  config.pool.size_bytes += kPoolPageBytes;
  const auto warning = exceeded_memory_limit(config, files_);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("pool.size is 67112960 bytes"));
  EXPECT_THAT(*warning, HasSubstr(fs("/a/memory.max")));
  EXPECT_THAT(*warning, HasSubstr("MemoryMax="));
}

TEST_F(MemoryLimitTest, FreeHugePagesAreCounted) {
  write("meminfo", "MemTotal: 1 kB\nHugePages_Total: 9\nHugePages_Free: 3\nHugepagesize: 2048 kB");
  EXPECT_EQ(free_huge_page_bytes(folder_ + "/meminfo"), 6 * kMiB);
  write("meminfo", "HugePages_Free: 3\nHugepagesize: 1048576 kB");
  EXPECT_EQ(free_huge_page_bytes(folder_ + "/meminfo"), 0U);
}

TEST_F(MemoryLimitTest, FreePagesOfOneGiBAreCounted) {
  EXPECT_EQ(free_gib_page_bytes(folder_), 0U) << "the machine has none";
  write("hugepages-1048576kB/free_hugepages", "3\n");
  EXPECT_EQ(free_gib_page_bytes(folder_), 3 * 1024 * kMiB);
}

}  // namespace
}  // namespace remora::config
