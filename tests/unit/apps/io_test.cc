// Local files that change while they are read, and outputs that appear when they are complete.

#include "cli/io.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

namespace remora::apps {
namespace {

namespace fs = std::filesystem;

class IoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "remora-io.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream{path(name), std::ios::binary | std::ios::trunc} << text;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file{path(name)};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  [[nodiscard]] std::ptrdiff_t file_count() const {
    return std::distance(fs::directory_iterator{folder_}, {});
  }
  static std::uint64_t read_to_end(Input& input) {
    std::array<std::byte, 64> buffer{};
    std::uint64_t bytes = 0;
    while (true) {
      const std::size_t got = input.read(buffer).value();
      if (got == 0) return bytes;
      bytes += got;
    }
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
  }

 private:
  fs::path folder_;
};

TEST_F(IoTest, FileThatStaysHasNotChanged) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  EXPECT_EQ(input.size_bytes(), 1000U);
  EXPECT_EQ(input.change_since_open(read_to_end(input)), "");
}

TEST_F(IoTest, FileThatBecomesShorterIsToldWithBothSizes) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 300);
  EXPECT_EQ(input.change_since_open(read_to_end(input)),
            "it became shorter while it was read: 1000 bytes by its size when it was opened, 300 "
            "bytes when its end was reached");
}

TEST_F(IoTest, FileThatBecomesLongerIsToldWithBothSizes) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 1001);
  EXPECT_EQ(input.change_since_open(read_to_end(input)),
            "it became longer while it was read: 1000 bytes by its size when it was opened, 1001 "
            "bytes when its end was reached");
}

TEST_F(IoTest, FileOfTheSameSizeThatIsWrittenToIsTold) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::last_write_time(path("file"), fs::file_time_type::clock::now() + std::chrono::hours{1});
  EXPECT_EQ(input.change_since_open(read_to_end(input)), "it was written to while it was read");
}

TEST_F(IoTest, FileAppearsWhenItIsCommitted) {
  {
    Output output = Output::open(path("file")).value();
    ASSERT_TRUE(output.write(bytes_of("new")).ok());
    EXPECT_FALSE(fs::exists(path("file")));
    ASSERT_TRUE(output.commit().ok());
  }
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(IoTest, FileThatIsNotCommittedLeavesNothing) {
  put("file", "old");
  {
    Output output = Output::open(path("file")).value();
    ASSERT_TRUE(output.write(bytes_of("new")).ok());
  }
  EXPECT_EQ(text("file"), "old");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(IoTest, ReplacedFileKeepsItsMode) {
  put("file", "old");
  fs::permissions(path("file"), fs::perms{0640});
  Output output = Output::open(path("file")).value();
  ASSERT_TRUE(output.write(bytes_of("new")).ok());
  ASSERT_TRUE(output.commit().ok());
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(fs::status(path("file")).permissions(), fs::perms{0640});
  EXPECT_EQ(file_count(), 1);
}

TEST_F(IoTest, FileThatAppearsMeanwhileIsReplaced) {
  Output output = Output::open(path("file")).value();
  ASSERT_TRUE(output.write(bytes_of("new")).ok());
  put("file", "another process's");
  ASSERT_TRUE(output.commit().ok());
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(IoTest, OutputThatCannotBeIsRefusedWhenItIsOpened) {
  fs::create_symlink("gone", path("dangling"));
  for (const std::string& name : {std::string{"dangling"}, std::string{"nosuch/"},
                                  std::string{"nosuch/file"}, std::string(300, 'x')})
    EXPECT_FALSE(Output::open(path(name))) << name;
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(file_count(), 1);
}

}  // namespace
}  // namespace remora::apps
