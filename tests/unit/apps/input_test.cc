// Local files that change while they are read.

#include "cli/input.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <string>

#include "local_files_fixture.h"

namespace remora::apps {
namespace {

using InputTest = LocalFilesTest;

TEST_F(InputTest, FileThatStaysHasNotChanged) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  EXPECT_EQ(input.size_bytes(), 1000U);
  EXPECT_EQ(input.change_since_open(read_to_end(input)), "");
}

TEST_F(InputTest, FileThatBecomesShorterIsToldWithBothSizes) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 300);
  EXPECT_EQ(input.change_since_open(read_to_end(input)),
            "it became shorter while it was read: 1000 bytes by its size when it was opened, 300 "
            "bytes when its end was reached");
}

TEST_F(InputTest, FileThatBecomesLongerIsToldWithBothSizes) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 1001);
  EXPECT_EQ(input.change_since_open(read_to_end(input)),
            "it became longer while it was read: 1000 bytes by its size when it was opened, 1001 "
            "bytes when its end was reached");
}

TEST_F(InputTest, FileOfTheSameSizeThatIsWrittenToIsTold) {
  put("file", std::string(1000, 'x'));
  Input input = Input::open(path("file")).value();
  fs::last_write_time(path("file"), fs::file_time_type::clock::now() + std::chrono::hours{1});
  EXPECT_EQ(input.change_since_open(read_to_end(input)), "it was written to while it was read");
}

TEST_F(InputTest, StretchesAreThoseOfTheFileSystem) {
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

TEST_F(InputTest, BytesBehindTheEndAreNoHole) {
  put("file", std::string(4096, 'x'));
  const Input input = Input::open(path("file")).value();
  fs::resize_file(path("file"), 100);
  EXPECT_FALSE(input.stretch(2000).hole);
  std::array<std::byte, 64> buffer{};
  EXPECT_EQ(input.read_at(2000, buffer).value(), 0U);
  EXPECT_EQ(input.read_at(90, buffer).value(), 10U);
}

}  // namespace
}  // namespace remora::apps
