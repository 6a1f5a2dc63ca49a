// Mirrors through the C API: claims, their loss, the loss of a member. Over tcp.

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <gmock/gmock.h>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "volume_test.h"

namespace remora::test {
namespace {

using ::testing::HasSubstr;

/// What a remora_volume_handler was told.
class ToldEvents {
 public:
  static void tell(void* context, const remora_volume_event* event) {
    auto& told = *static_cast<ToldEvents*>(context);
    const std::scoped_lock lock{told.mutex_};
    told.changes_.push_back(event->change);
    told.server_ = event->server;
    told.wake_.notify_all();
  }
  /// Whether the change was told; waits for it.
  [[nodiscard]] bool has(int change) {
    std::unique_lock lock{mutex_};
    return wake_.wait_for(lock, std::chrono::seconds{30}, [&] {
      return std::find(changes_.begin(), changes_.end(), change) != changes_.end();
    });
  }
  [[nodiscard]] std::string server() {
    const std::scoped_lock lock{mutex_};
    return server_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<int> changes_;
  std::string server_;
};

remora_volume_claim_options claim_options(const char* identity, std::uint32_t steal = 0) {
  remora_volume_claim_options options{};
  options.size = sizeof(options);
  options.identity = identity;
  options.steal = steal;
  return options;
}

/// The volume "disk" is a mirror: one group on two of the three servers.
class CMirrorTest : public VolumeTest {
 protected:
  volume::VolumeSpec spec() override {
    volume::VolumeSpec made = VolumeTest::spec();
    made.kind = volume::Kind::kMirror;
    made.copies = 2;
    made.width = 1;
    made.size_bytes = kGroup;
    return made;
  }
  void TearDown() override {
    remora_volume_free(other_);
    VolumeTest::TearDown();
  }
  void open_with_handler() {
    remora_volume_options options = no_options();
    options.on_event = ToldEvents::tell;
    options.event_context = &events_;
    ASSERT_EQ(open(&options), REMORA_OK) << error_.message;
  }
  int open_other() {
    return remora_engine_open_volume(engine_, uri().c_str(), nullptr, &other_, &error_);
  }
  int claim(remora_volume* volume, const remora_volume_claim_options* options = nullptr) {
    return remora_volume_claim(volume, options, &error_);
  }
  int write(remora_volume* volume, const std::vector<unsigned char>& bytes) {
    return remora_volume_write(volume, 0, bytes.data(), bytes.size(), nullptr, 0, &error_);
  }
  /// The bytes at its beginning, as any client reads them.
  std::vector<unsigned char> read(remora_volume* volume, std::size_t length) {
    std::vector<unsigned char> found(length);
    EXPECT_EQ(remora_volume_read(volume, 0, found.data(), length, nullptr, 0, &error_), REMORA_OK)
        << error_.message;
    return found;
  }

  remora_volume* other_ = nullptr;
  ToldEvents events_;
};

TEST_F(CMirrorTest, ItsWriterClaimsIt) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  remora_volume_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(remora_volume_info_of(volume_, &info, &error_), REMORA_OK);
  EXPECT_EQ(info.copies, 2U);
  EXPECT_EQ(info.size_bytes, kGroup);
  const std::vector<unsigned char> bytes = pattern(3 * kStripe, 1);
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
  EXPECT_EQ(write(volume_, bytes), REMORA_NO_RIGHT);
  EXPECT_THAT(error_.message, HasSubstr("claim"));
  EXPECT_EQ(remora_volume_release(volume_, &error_), REMORA_NOT_FOUND);

  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  EXPECT_EQ(remora_volume_claimed(volume_), 1);
  EXPECT_EQ(remora_volume_connected(volume_), 1);
  EXPECT_EQ(claim(volume_), REMORA_ALREADY_EXISTS);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
  ASSERT_EQ(remora_volume_write_zeroes(volume_, 0, 8, 0, &error_), REMORA_OK) << error_.message;
  std::uint64_t before = 1;
  ASSERT_EQ(remora_volume_fetch_add(volume_, 0, 5, &before, 0, &error_), REMORA_OK);
  EXPECT_EQ(before, 0U);
  ASSERT_EQ(remora_volume_compare_swap(volume_, 0, 5, 0, &before, 0, &error_), REMORA_OK);
  EXPECT_EQ(before, 5U);
  EXPECT_EQ(remora_volume_flush_visible(volume_, 0, &error_), REMORA_OK);
  EXPECT_EQ(remora_volume_settled(volume_, 1'000'000'000, &error_), REMORA_OK) << error_.message;

  ASSERT_EQ(open_other(), REMORA_OK) << error_.message;
  EXPECT_EQ(read(other_, bytes.size()), read(volume_, bytes.size()));
  ASSERT_EQ(remora_volume_release(volume_, &error_), REMORA_OK) << error_.message;
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
  EXPECT_EQ(write(volume_, bytes), REMORA_NO_RIGHT);
}

TEST_F(CMirrorTest, AnotherWriterIsNamedAndMayBeReplaced) {
  open_with_handler();
  ASSERT_EQ(open_other(), REMORA_OK) << error_.message;
  const remora_volume_claim_options first = claim_options("the first one");
  ASSERT_EQ(claim(volume_, &first), REMORA_OK) << error_.message;
  EXPECT_EQ(claim(other_), REMORA_BUSY);
  EXPECT_EQ(error_.reason, REMORA_REASON_HELD);
  EXPECT_STREQ(error_.subject, "the first one");
  EXPECT_THAT(error_.message, HasSubstr("steal"));
  EXPECT_EQ(remora_volume_claimed(other_), 0);

  const remora_volume_claim_options second = claim_options("the second one", 1);
  ASSERT_EQ(claim(other_, &second), REMORA_OK) << error_.message;
  const std::vector<unsigned char> bytes = pattern(kStripe, 4);
  EXPECT_EQ(write(volume_, bytes), REMORA_ACCESS_REFUSED);
  EXPECT_EQ(error_.reason, REMORA_REASON_FENCED);
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
  EXPECT_TRUE(events_.has(REMORA_VOLUME_WRITER_LOST));
  EXPECT_EQ(remora_volume_release(volume_, &error_), REMORA_ACCESS_REFUSED);
  ASSERT_EQ(write(other_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
}

TEST_F(CMirrorTest, AnExclusiveWriterReadsAlone) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  ASSERT_EQ(open_other(), REMORA_OK) << error_.message;
  remora_volume_claim_options options = claim_options(nullptr);
  options.exclusive = 1;
  ASSERT_EQ(claim(volume_, &options), REMORA_OK) << error_.message;
  const std::vector<unsigned char> bytes = pattern(kStripe, 6);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
  std::array<unsigned char, 8> some{};
  EXPECT_EQ(remora_volume_read(other_, 0, some.data(), some.size(), nullptr, 0, &error_),
            REMORA_BUSY);
  ASSERT_EQ(remora_volume_release(volume_, &error_), REMORA_OK) << error_.message;
  EXPECT_EQ(read(other_, bytes.size()), bytes);
}

/// A backup's region is removed: no reader has to be waited for.
TEST_F(CMirrorTest, AMemberThatIsLostIsToldAndWritesGoOn) {
  open_with_handler();
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  remora_volume_group group{};
  std::size_t count = 0;
  ASSERT_EQ(remora_volume_groups(volume_, &group, 1, &count, &error_), REMORA_OK);
  ASSERT_EQ(count, 1U);
  std::string backup;
  for (std::uint32_t i = 0; i < kServers; ++i) {
    const std::string name = "s" + std::to_string(i);
    if (name == group.server) continue;
    for (const RegionInfo& region : server(i).regions()) {
      ASSERT_OK(server(i).remove_region(region.name, Removal::kNow));
      backup = name;
    }
  }
  ASSERT_FALSE(backup.empty());
  const std::vector<unsigned char> bytes = pattern(2 * kStripe, 8);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_TRUE(events_.has(REMORA_VOLUME_MEMBER_REMOVED));
  EXPECT_EQ(events_.server(), backup);
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
}

/// The handle has what it needs of the engine, and its end is that of the claim.
TEST_F(CMirrorTest, ItsEngineMayBeFreedFirst) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  remora_engine_free(engine_);
  engine_ = nullptr;
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  const std::vector<unsigned char> bytes = pattern(kStripe, 3);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
  remora_volume_free(volume_);
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
  EXPECT_EQ(claim(volume_), REMORA_CLOSED);
  volume_ = nullptr;
  ASSERT_EQ(remora_engine_open(nullptr, &engine_, &error_), REMORA_OK) << error_.message;
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  EXPECT_EQ(claim(volume_), REMORA_OK) << error_.message;
}

TEST_F(CMirrorTest, QueueWritesWhatIsClaimed) {
  constexpr std::uint64_t kDepth = 4;
  open_queue(kDepth);
  const std::vector<unsigned char> bytes = pattern(kDepth * kStripe, 5);
  const auto write_all = [&] {
    for (std::uint64_t i = 0; i < kDepth; ++i)
      EXPECT_NE(
          remora_queue_write(queue_, i * kStripe, bytes.data() + i * kStripe, kStripe, nullptr, i),
          0U);
    EXPECT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
    return all(kDepth, kDepth);
  };
  for (const remora_completion& completion : write_all())
    EXPECT_EQ(completion.code, REMORA_NO_RIGHT);
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  const std::vector<remora_completion> written = write_all();
  EXPECT_EQ(written.size(), kDepth);
  for (const remora_completion& completion : written) EXPECT_EQ(completion.code, REMORA_OK);
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
}

TEST_F(CMirrorTest, WrongArgumentsAreRefused) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  EXPECT_EQ(claim(nullptr), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(remora_volume_release(nullptr, &error_), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(remora_volume_claimed(nullptr), 0);
  remora_volume_claim_options options{};
  EXPECT_EQ(claim(volume_, &options), REMORA_INVALID_ARGUMENT);  // no size
  options = claim_options(nullptr, 2);
  EXPECT_EQ(claim(volume_, &options), REMORA_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.subject, "steal");
  options = claim_options(nullptr);
  options.exclusive = 2;
  EXPECT_EQ(claim(volume_, &options), REMORA_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.subject, "exclusive");
  const std::string longest(201, 'x');
  options = claim_options(longest.c_str());
  EXPECT_EQ(claim(volume_, &options), REMORA_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("identity"));
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
}

TEST_F(CMirrorTest, ChildOfForkIsRefused) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = claim(volume_) == REMORA_CLOSED && error_.reason == REMORA_REASON_FORKED &&
                         remora_volume_release(volume_, &error_) == REMORA_CLOSED &&
                         remora_volume_claimed(volume_) == 0;
    ::_exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(remora_volume_claimed(volume_), 1);
}

TEST_F(VolumeTest, StripedVolumesNeedNoClaim) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  EXPECT_EQ(remora_volume_claim(volume_, nullptr, &error_), REMORA_UNSUPPORTED);
  EXPECT_THAT(error_.message, HasSubstr("needs no claim"));
  EXPECT_EQ(remora_volume_release(volume_, &error_), REMORA_NOT_FOUND);
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
}

}  // namespace
}  // namespace remora::test
