// How a file is cut up for a put.

#include "cli/file_pieces.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace remora::apps {
namespace {

constexpr std::uint64_t kStepBytes = std::uint64_t{16} << 20U;
constexpr std::uint64_t kMebiBytes = std::uint64_t{1} << 20U;

class FilePiecesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "remora-pieces.XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
    file_ = pattern;
  }
  void TearDown() override { std::filesystem::remove(file_); }

  void write_at(std::uint64_t at, const std::string& text) const {
    std::fstream file{file_, std::ios::binary | std::ios::in | std::ios::out};
    file.seekp(static_cast<std::streamoff>(at));
    file << text;
  }
  void resize(std::uint64_t size) const { std::filesystem::resize_file(file_, size); }
  [[nodiscard]] Input input() const { return Input::open(file_.string()).value(); }
  /// Whether the file system knows the hole that `input` begins with.
  static bool knows_holes(const Input& input) { return input.stretch(0).hole; }

  std::vector<Piece> pieces(FilePieces& source) {
    std::vector<Piece> found;
    while (true) {
      const Piece piece = source.next(buffer_).value();
      if (piece.length == 0) return found;
      found.push_back(piece);
    }
  }
  std::span<std::byte> part(std::uint64_t length) { return std::span{buffer_}.first(length); }

 private:
  std::filesystem::path file_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPieceBytes);
};

/// The pieces follow each other from `first` on to `end`.
void expect_gapless(const std::vector<Piece>& pieces, std::uint64_t first, std::uint64_t end) {
  for (const Piece& piece : pieces) {
    EXPECT_EQ(piece.at, first);
    EXPECT_LE(piece.length, piece.hole ? kHoleBytes : std::uint64_t{kPieceBytes});
    EXPECT_EQ(piece.at / kStepBytes, (piece.at + piece.length - 1) / kStepBytes);
    first += piece.length;
  }
  EXPECT_EQ(first, end);
}

TEST_F(FilePiecesTest, DataIsCutIntoPieces) {
  write_at(0, std::string(3 * kPieceBytes + 5, 'x'));
  const Input file = input();
  FilePieces source{file, 0, kStepBytes};
  const auto found = pieces(source);
  EXPECT_EQ(found.size(), 4U);
  expect_gapless(found, 0, 3 * kPieceBytes + 5);
  EXPECT_EQ(source.hole_bytes(), 0U);
  EXPECT_EQ(source.fill(found.back(), part(5)).value(), 5U);
  EXPECT_EQ(source.end(), 3 * kPieceBytes + 5);
}

TEST_F(FilePiecesTest, PiecesBeginWhereAnEarlierRunEnded) {
  resize(kStepBytes + 100);
  const Input file = input();
  FilePieces source{file, kStepBytes, kStepBytes};
  expect_gapless(pieces(source), kStepBytes, kStepBytes + 100);
}

TEST_F(FilePiecesTest, LongHolesHaveNoBytesAndGoAcrossNoStep) {
  resize(40 * kMebiBytes);
  const Input file = input();
  if (!knows_holes(file)) GTEST_SKIP() << "this file system tells of no holes";
  FilePieces source{file, 0, kStepBytes};
  const auto found = pieces(source);
  expect_gapless(found, 0, 40 * kMebiBytes);
  EXPECT_EQ(found.size(), 10U);
  EXPECT_EQ(source.hole_bytes(), 40 * kMebiBytes);
}

TEST_F(FilePiecesTest, ShortHolesAreRead) {
  resize(kMebiBytes);
  write_at(32 * 1024, std::string(4096, 'x'));
  write_at(kMebiBytes - 4096, std::string(4096, 'y'));
  const Input file = input();
  if (!knows_holes(file)) GTEST_SKIP() << "this file system tells of no holes";
  FilePieces source{file, 0, kStepBytes};
  const auto found = pieces(source);
  expect_gapless(found, 0, kMebiBytes);
  ASSERT_FALSE(found.empty());
  EXPECT_FALSE(found.front().hole);
  EXPECT_GT(source.hole_bytes(), 0U);
  EXPECT_LT(source.hole_bytes(), kMebiBytes - 32 * 1024);
}

TEST_F(FilePiecesTest, EndOfAFileThatBecomesShorterIsFound) {
  write_at(0, std::string(2 * kPieceBytes, 'x'));
  const Input file = input();
  FilePieces source{file, 0, kStepBytes};
  const auto found = pieces(source);
  ASSERT_EQ(found.size(), 2U);
  resize(kPieceBytes + 7);
  EXPECT_EQ(source.fill(found[1], part(kPieceBytes)).value(), 7U);
  EXPECT_EQ(source.end(), kPieceBytes + 7);
  EXPECT_EQ(source.fill(found[0], part(kPieceBytes)).value(), kPieceBytes);
  EXPECT_EQ(source.end(), kPieceBytes + 7);
}

}  // namespace
}  // namespace remora::apps
