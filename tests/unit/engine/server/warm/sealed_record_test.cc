/// A record is what was committed last, or is refused: never what was committed before.

#include "server/warm/sealed_record.h"

#include <array>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace remora::detail {
namespace {

std::vector<std::byte> payload_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

class SealedRecordTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = SealedRecord::create("remora-test");
    ASSERT_TRUE(made) << made.error().message();
    record_.emplace(std::move(*made));
  }
  void commit(std::string_view text) { ASSERT_TRUE(record_->write(payload_of(text))); }
  /// As the next process finds it; the code of the error as text, where it is refused.
  [[nodiscard]] std::string found() const {
    auto next = SealedRecord::adopt(UniqueFd{::fcntl(record_->fd(), F_DUPFD_CLOEXEC, 3)});
    if (!next) return std::string{to_string(next.error().code())};
    const auto read = next->read();
    if (!read) return std::string{to_string(read.error().code())};
    return {reinterpret_cast<const char*>(read->data()), read->size()};
  }
  void put(std::uint64_t at, std::span<const std::byte> bytes) const {
    ASSERT_EQ(::pwrite(record_->fd(), bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }
  void flip(std::uint64_t at) const {
    std::byte byte{};
    ASSERT_EQ(::pread(record_->fd(), &byte, 1, static_cast<off_t>(at)), 1);
    byte ^= std::byte{0x5a};
    put(at, {&byte, 1});
  }

  std::optional<SealedRecord> record_;
};

const std::string damage_told{to_string(Code::kProtocol)};

TEST_F(SealedRecordTest, NothingIsCommittedAtFirst) {
  EXPECT_EQ(found(), to_string(Code::kNotFound));
}

TEST_F(SealedRecordTest, LatestCommitIsRead) {
  for (const char* const text : {"one", "two", "three", ""}) {
    commit(text);
    EXPECT_EQ(found(), text);
  }
}

TEST_F(SealedRecordTest, NextProcessGoesOnWithTheSequence) {
  commit("one");
  commit("two");
  auto next = SealedRecord::adopt(UniqueFd{::fcntl(record_->fd(), F_DUPFD_CLOEXEC, 3)}).value();
  ASSERT_TRUE(next.read());
  EXPECT_EQ(next.sequence(), 2U);
  ASSERT_TRUE(next.write(payload_of("three")));
  EXPECT_EQ(found(), "three");
}

/// A write that ends after each of its bytes.
TEST_F(SealedRecordTest, CrashAtEachByteOfAWriteLeavesTheOldOrTheNewOne) {
  commit("before the crash");
  commit("old");
  const std::vector<std::byte> payload = payload_of("the new one, which is longer");
  const SealedRecord::Staged staged = SealedRecord::stage(payload, 3);
  const std::uint64_t payload_at = staged.offset_bytes + SealedRecord::kHeaderBytes;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    put(payload_at + i, {&payload[i], 1});
    ASSERT_EQ(found(), "old") << "payload, byte " << i;
  }
  for (std::size_t i = 0; i < staged.header.size(); ++i) {
    put(staged.offset_bytes + i, {&staged.header[i], 1});
    ASSERT_EQ(found(), "old") << "header, byte " << i;
  }
  // The commit word is one aligned store.
  std::array<std::byte, sizeof staged.commit_word> word{};
  std::memcpy(word.data(), &staged.commit_word, word.size());
  put(8, word);
  EXPECT_EQ(found(), "the new one, which is longer");
}

TEST_F(SealedRecordTest, EachByteDamagedIsRefusedOrDoesNotMatter) {
  commit("old");
  commit("new");
  std::size_t refused = 0;
  const auto try_byte = [&](std::uint64_t at) {
    flip(at);
    const std::string read = found();
    EXPECT_TRUE(read == "new" || read == damage_told) << "byte " << at << ": " << read;
    if (read == damage_told) ++refused;
    flip(at);
  };
  for (std::uint64_t at = 0; at < 64; ++at) try_byte(at);
  for (std::uint64_t slot = 0; slot < 2; ++slot)
    for (std::uint64_t at = 0; at < SealedRecord::kHeaderBytes + 16; ++at)
      try_byte(SealedRecord::kFirstSlot + slot * SealedRecord::kSlotBytes + at);
  // Magic, commit word, and header and payload of the committed slot.
  EXPECT_EQ(refused, 8 + 8 + SealedRecord::kHeaderBytes + std::strlen("new"));
  EXPECT_EQ(found(), "new");
}

TEST_F(SealedRecordTest, SpoiledRecordIsEmpty) {
  commit("one");
  record_->spoil();
  EXPECT_EQ(found(), to_string(Code::kNotFound));
}

TEST_F(SealedRecordTest, MemoryThatIsNoRecordIsRefused) {
  UniqueFd plain{::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  ASSERT_TRUE(plain);
  ASSERT_EQ(::ftruncate(plain.get(), static_cast<off_t>(SealedRecord::kFileBytes)), 0);
  EXPECT_EQ(SealedRecord::adopt(std::move(plain)).error().code(), Code::kProtocol);
}

TEST_F(SealedRecordTest, PayloadThatIsTooLongLeavesTheOldOne) {
  commit("old");
  const std::vector<std::byte> payload(SealedRecord::kSlotBytes);
  EXPECT_EQ(record_->write(payload).error().code(), Code::kLimitExceeded);
  EXPECT_EQ(found(), "old");
}

TEST_F(SealedRecordTest, LockIsOneProcesssAtATime) {
  std::int64_t holder = 0;
  ASSERT_TRUE(record_->try_lock(holder));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::int64_t other = 0;
    const bool locked = record_->try_lock(other);
    ::_exit(!locked && other == ::getppid() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace remora::detail
