// Outputs that appear when they are complete.

#include "cli/output.h"

#include <array>
#include <filesystem>
#include <string>

#include "local_files_fixture.h"

namespace remora::apps {
namespace {

using OutputTest = LocalFilesTest;

TEST_F(OutputTest, FileAppearsWhenItIsCommitted) {
  {
    Output output = Output::open(path("file")).value();
    ASSERT_TRUE(output.write(bytes_of("new")).ok());
    EXPECT_FALSE(fs::exists(path("file")));
    ASSERT_TRUE(output.commit().ok());
  }
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(OutputTest, FileThatIsNotCommittedLeavesNothing) {
  put("file", "old");
  {
    Output output = Output::open(path("file")).value();
    ASSERT_TRUE(output.write(bytes_of("new")).ok());
  }
  EXPECT_EQ(text("file"), "old");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(OutputTest, ReplacedFileKeepsItsMode) {
  put("file", "old");
  fs::permissions(path("file"), fs::perms{0640});
  Output output = Output::open(path("file")).value();
  ASSERT_TRUE(output.write(bytes_of("new")).ok());
  ASSERT_TRUE(output.commit().ok());
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(fs::status(path("file")).permissions(), fs::perms{0640});
  EXPECT_EQ(file_count(), 1);
}

TEST_F(OutputTest, FileThatAppearsMeanwhileIsReplaced) {
  Output output = Output::open(path("file")).value();
  ASSERT_TRUE(output.write(bytes_of("new")).ok());
  put("file", "another process's");
  ASSERT_TRUE(output.commit().ok());
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(OutputTest, ZeroesBecomeHoles) {
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

TEST_F(OutputTest, BlocksOfHolesAreThoseOfTheFile) {
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

TEST_F(OutputTest, ResumableOutputWaitsUnderItsOwnName) {
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

TEST_F(OutputTest, ResumableOutputStaysUntilItIsDecided) {
  put("file.remora-part", "fetched before");
  { const Output output = Output::open(path("file"), Output::Kind::kResumable).value(); }
  EXPECT_EQ(text("file.remora-part"), "fetched before");
  {
    Output output = Output::open(path("file"), Output::Kind::kResumable).value();
    output.keep(false);
  }
  EXPECT_EQ(file_count(), 0);
}

TEST_F(OutputTest, OutputThatCannotBeIsRefusedWhenItIsOpened) {
  fs::create_symlink("gone", path("dangling"));
  for (const std::string& name : {std::string{"dangling"}, std::string{"nosuch/"},
                                  std::string{"nosuch/file"}, std::string(300, 'x')})
    EXPECT_FALSE(Output::open(path(name))) << name;
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(file_count(), 1);
}

}  // namespace
}  // namespace remora::apps
