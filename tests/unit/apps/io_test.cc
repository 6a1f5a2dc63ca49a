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

TEST_F(IoTest, StretchesAreThoseOfTheFileSystem) {
  constexpr std::uint64_t kMebi = std::uint64_t{1} << 20U;
  put("file", std::string(4096, 'x'));
  fs::resize_file(path("file"), 4 * kMebi);
  const Input input = Input::open(path("file")).value();
  const FileStretch first = input.stretch(0);
  if (first.end == 4 * kMebi) GTEST_SKIP() << "this file system tells of no holes";
  EXPECT_FALSE(first.hole);
  EXPECT_GE(first.end, 4096U);
  const FileStretch second = input.stretch(first.end);
  EXPECT_TRUE(second.hole);
  EXPECT_EQ(second.end, 4 * kMebi);
}

TEST_F(IoTest, BytesBehindTheEndAreNoHole) {
  put("file", std::string(4096, 'x'));
  const Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 100);
  EXPECT_FALSE(input.stretch(2000).hole);
  std::array<std::byte, 64> buffer{};
  EXPECT_EQ(input.read_at(2000, buffer).value(), 0U);
  EXPECT_EQ(input.read_at(90, buffer).value(), 10U);
}

TEST_F(IoTest, ZeroesBecomeHoles) {
  constexpr std::size_t kBlock = 4096;
  std::string bytes(16 * kBlock, '\0');
  bytes[0] = 'a';                // a block that is not zero
  bytes[5 * kBlock - 1] = 'b';   // the last byte of another one
  bytes[16 * kBlock - 1] = 'c';  // the last byte
  std::uint64_t skipped = 0;
  {
    Output output = Output::open(path("file")).value();
    ASSERT_TRUE(output.is_file());
    ASSERT_TRUE(output.resize(0, bytes.size()).ok());
    ASSERT_TRUE(output.write_sparse(0, bytes_of(bytes), skipped).ok());
    ASSERT_TRUE(output.commit().ok());
  }
  EXPECT_EQ(text("file"), bytes);
  EXPECT_EQ(skipped, 13 * kBlock);
}

TEST_F(IoTest, BlocksOfHolesAreThoseOfTheFile) {
  constexpr std::size_t kBlock = 4096;
  const std::string zeroes(2 * kBlock, '\0');
  std::uint64_t skipped = 0;
  Output output = Output::open(path("file")).value();
  ASSERT_TRUE(output.resize(0, 4 * kBlock).ok());
  ASSERT_TRUE(output.write_sparse(100, bytes_of(zeroes), skipped).ok());
  EXPECT_EQ(skipped, zeroes.size());
  std::string one = zeroes;
  one[kBlock - 101] = 'x';  // the last byte of the first block
  skipped = 0;
  ASSERT_TRUE(output.write_sparse(100, bytes_of(one), skipped).ok());
  EXPECT_EQ(skipped, zeroes.size() - (kBlock - 100));
  ASSERT_TRUE(output.commit().ok());
  EXPECT_EQ(text("file").find('x'), kBlock - 1);
}

TEST_F(IoTest, ResumableOutputWaitsUnderItsOwnName) {
  {
    Output output = Output::open(path("file"), Output::Kind::kResumable).value();
    ASSERT_TRUE(output.write_at(0, bytes_of("half")).ok());
    output.keep(true);
  }
  EXPECT_EQ(text("file.remora-part"), "half");
  {
    Output output = Output::open(path("file"), Output::Kind::kResumable).value();
    EXPECT_EQ(output.part_name(), path("file.remora-part"));
    EXPECT_EQ(Output::open(path("file"), Output::Kind::kResumable).error().code(), Code::kBusy);
    ASSERT_TRUE(output.write_at(4, bytes_of(" whole")).ok());
    ASSERT_TRUE(output.commit().ok());
  }
  EXPECT_EQ(text("file"), "half whole");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(IoTest, ResumableOutputStaysUntilItIsDecided) {
  put("file.remora-part", "fetched before");
  { const Output output = Output::open(path("file"), Output::Kind::kResumable).value(); }
  EXPECT_EQ(text("file.remora-part"), "fetched before");
  {
    Output output = Output::open(path("file"), Output::Kind::kResumable).value();
    output.keep(false);
  }
  EXPECT_EQ(file_count(), 0);
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
