// The journal of --resume: what it keeps, and what it does not trust.

#include "cli/transfer_journal.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

namespace remora::apps {
namespace {

constexpr std::uint64_t kStep = kCheckpointBytes;

class TransferJournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "remora-state.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    if (const char* const before = std::getenv("REMORA_STATE_DIR"); before != nullptr)
      before_ = before;
    // A folder that does not exist yet.
    ::setenv("REMORA_STATE_DIR", (folder_ / "state").c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty())
      ::unsetenv("REMORA_STATE_DIR");
    else
      ::setenv("REMORA_STATE_DIR", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  static std::unique_ptr<TransferJournal> open(const std::string& file = "disk.img") {
    auto journal = TransferJournal::open(Json{{"command", "put"}, {"file", file}});
    EXPECT_TRUE(journal) << journal.error().text;
    return journal ? std::move(*journal) : nullptr;
  }
  static Json identity(std::uint64_t memory_id = 1) {
    return Json{{"checksum", "sha256"}, {"memory_id", memory_id}, {"file", Json{{"size", 7}}}};
  }
  /// A run that ends after `steps` steps.
  static std::string run(std::uint64_t steps) {
    const auto journal = open();
    EXPECT_TRUE(journal->begin(identity()));
    for (std::uint64_t i = 0; i < steps; ++i) {
      journal->moved({i * kStep, kStep, false});
      journal->summed((i + 1) * kStep, "digest" + std::to_string(i + 1));
    }
    return journal->path();
  }
  static void append(const std::string& path, const std::string& text) {
    std::ofstream{path, std::ios::app} << text;
  }

 private:
  std::filesystem::path folder_;
  std::string before_;
};

TEST_F(TransferJournalTest, FirstRunFindsNothing) {
  const auto journal = open();
  EXPECT_FALSE(journal->left());
  EXPECT_EQ(journal->done(), 0U);
}

TEST_F(TransferJournalTest, NextRunFindsTheLastCheckpoint) {
  run(3);
  const auto journal = open();
  ASSERT_TRUE(journal->left());
  EXPECT_EQ(journal->left()->done, 3 * kStep);
  EXPECT_EQ(journal->left()->digest, "digest3");
  EXPECT_EQ(journal->mismatch(identity()), "");
  journal->go_on();
  EXPECT_EQ(journal->done(), 3 * kStep);
  journal->moved({3 * kStep, kStep, false});
  journal->summed(4 * kStep, "digest4");
  EXPECT_EQ(journal->done(), 4 * kStep);
}

TEST_F(TransferJournalTest, CheckpointNeedsEveryByteBeforeItAndItsDigest) {
  const auto journal = open();
  ASSERT_TRUE(journal->begin(identity()));
  journal->summed(kStep, "one");
  journal->moved({100, kStep - 100, false});
  EXPECT_EQ(journal->done(), 0U);
  journal->moved({kStep, kStep, false});
  EXPECT_EQ(journal->done(), 0U);
  journal->moved({0, 100, false});
  EXPECT_EQ(journal->done(), kStep);
  journal->summed(2 * kStep, "two");
  EXPECT_EQ(journal->done(), 2 * kStep);
}

TEST_F(TransferJournalTest, RunWithoutACheckpointLeavesNothing) {
  run(0);
  EXPECT_FALSE(open()->left());
}

TEST_F(TransferJournalTest, TornLineIsIgnored) {
  append(run(2), R"({"done":50331648,"dig)");
  EXPECT_EQ(open()->left()->done, 2 * kStep);
}

TEST_F(TransferJournalTest, LinesThatAreNoneAreIgnored) {
  append(run(2), "noise\n[]\n{\"done\":-1,\"digest\":\"x\"}\n{\"done\":50331648}\n");
  EXPECT_EQ(open()->left()->done, 2 * kStep);
}

TEST_F(TransferJournalTest, EachByteThatIsCutOffLeavesAnEarlierCheckpointOrNone) {
  const std::string path = run(2);
  std::ifstream file{path};
  const std::string whole{std::istreambuf_iterator<char>{file}, {}};
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    std::ofstream{path, std::ios::trunc} << whole.substr(0, length);
    const auto journal = open();
    const std::uint64_t done = journal->left() ? journal->left()->done : 0;
    EXPECT_TRUE(done == 0 || done == kStep || done == 2 * kStep) << length;
    EXPECT_EQ(done == 2 * kStep, length == whole.size()) << length;
  }
}

TEST_F(TransferJournalTest, MismatchNamesWhatIsDifferent) {
  run(1);
  const auto journal = open();
  EXPECT_EQ(journal->mismatch(identity(2)), "the server has new memory since");
  Json other = identity();
  other["file"] = Json{{"size", 8}};
  EXPECT_EQ(journal->mismatch(other), "the file has changed since");
  other = identity();
  other["checksum"] = "sha512";
  EXPECT_EQ(journal->mismatch(other), "--checksum is another one");
  other = identity();
  other["epoch"] = 3;
  EXPECT_EQ(journal->mismatch(other), "the region was fenced or made smaller since");
  ASSERT_TRUE(journal->begin(other));
  EXPECT_FALSE(journal->left());
}

TEST_F(TransferJournalTest, OneProcessAtATimeHasIt) {
  const auto journal = open();
  const auto second = TransferJournal::open(Json{{"command", "put"}, {"file", "disk.img"}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().exit_code, ExitCode::kRefused);
  EXPECT_NE(second.error().text.find("is locked"), std::string::npos);
  EXPECT_NE(open("another.img"), nullptr);
}

TEST_F(TransferJournalTest, RemovedJournalIsGone) {
  run(1);
  open()->remove();
  EXPECT_FALSE(open()->left());
}

TEST_F(TransferJournalTest, FolderThatCannotBeIsNamed) {
  ::setenv("REMORA_STATE_DIR", "/proc/self/nosuch", 1);
  const auto journal = TransferJournal::open(Json{{"command", "put"}});
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().exit_code, ExitCode::kLocal);
  EXPECT_NE(journal.error().text.find("REMORA_STATE_DIR names the folder"), std::string::npos);
}

}  // namespace
}  // namespace remora::apps
