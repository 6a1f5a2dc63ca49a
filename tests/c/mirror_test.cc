// Mirrors through the C API: claims, their loss, the loss of a member. Over tcp.

#include <algorithm>
#include <array>
#include <atomic>
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

  [[nodiscard]] static std::string name_of(std::uint32_t server) {
    return "s" + std::to_string(server);
  }
  /// As the handle has it.
  [[nodiscard]] remora_volume_group group() {
    remora_volume_group found{};
    std::size_t count = 0;
    EXPECT_EQ(remora_volume_groups(volume_, &found, 1, &count, &error_), REMORA_OK);
    EXPECT_EQ(count, 1U);
    return found;
  }
  /// Removes the region that is not read, so that no reader has to be waited for. Returns the name
  /// of its server.
  std::string remove_backup() {
    const std::string primary{group().server};
    std::string backup;
    for (std::uint32_t i = 0; i < kServers; ++i) {
      if (name_of(i) == primary) continue;
      for (const RegionInfo& region : server(i).regions()) {
        EXPECT_TRUE(server(i).remove_region(region.name, Removal::kNow).ok());
        backup = name_of(i);
      }
    }
    return backup;
  }

  remora_volume* other_ = nullptr;
  ToldEvents events_;
};

/// The handlers of a repair, and what they were told. One call at a time.
struct RepairCalls {
  std::string work{};
  std::uint64_t done_bytes = 0;
  std::uint64_t all_bytes = 0;
  std::atomic<int> asked{0};
  bool stop = false;
};

remora_volume_repair_options repair_options(RepairCalls* calls) {
  remora_volume_repair_options options{};
  options.size = sizeof(options);
  options.context = calls;
  options.on_progress = [](void* context, const remora_volume_progress* progress) {
    auto& told = *static_cast<RepairCalls*>(context);
    told.work = progress->work;
    told.done_bytes = progress->done_bytes;
    told.all_bytes = progress->all_bytes;
  };
  options.should_stop = [](void* context) {
    auto& told = *static_cast<RepairCalls*>(context);
    ++told.asked;
    return told.stop ? 1 : 0;
  };
  return options;
}

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

TEST_F(CMirrorTest, AMemberThatIsLostIsToldAndWritesGoOn) {
  open_with_handler();
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  const std::string backup = remove_backup();
  ASSERT_FALSE(backup.empty());
  const std::vector<unsigned char> bytes = pattern(2 * kStripe, 8);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_TRUE(events_.has(REMORA_VOLUME_MEMBER_REMOVED));
  EXPECT_EQ(events_.server(), backup);
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
}

TEST_F(CMirrorTest, GroupsTellTheirCopiesAndTransport) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  EXPECT_EQ(group().copies, 2);
  EXPECT_EQ(group().transport, REMORA_TRANSPORT_AUTO);
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  EXPECT_EQ(group().copies, 2);
  EXPECT_EQ(group().transport, REMORA_TRANSPORT_TCP);
  remora_volume_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(remora_volume_info_of(volume_, &info, &error_), REMORA_OK);
  EXPECT_EQ(info.transports, 1U << REMORA_TRANSPORT_TCP);
}

/// By the engine that has opened it, which the program has freed.
TEST_F(CMirrorTest, ALostCopyIsMadeAnewUnderTheClaim) {
  open_with_handler();
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  remora_engine_free(engine_);
  engine_ = nullptr;
  ASSERT_FALSE(remove_backup().empty());
  const std::vector<unsigned char> bytes = pattern(2 * kStripe, 8);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(group().copies, 1);

  RepairCalls calls;
  remora_volume_repair_options options = repair_options(&calls);
  calls.stop = true;
  remora_volume_repair_report report{};
  report.size = sizeof(report);
  char* left = nullptr;
  EXPECT_EQ(remora_volume_repair(volume_, &options, &report, &left, &error_), REMORA_CANCELLED);
  EXPECT_GT(calls.asked, 0);
  EXPECT_EQ(report.copies_made, 0U);
  EXPECT_EQ(group().copies, 1);

  calls.stop = false;
  ASSERT_EQ(remora_volume_repair(volume_, &options, &report, &left, &error_), REMORA_OK)
      << error_.message;
  EXPECT_EQ(left, nullptr) << left;
  EXPECT_EQ(report.left_count, 0U);
  EXPECT_EQ(report.groups, 1U);
  EXPECT_EQ(report.copies_made, 1U);
  EXPECT_EQ(report.bytes_copied, kGroup);
  EXPECT_EQ(calls.done_bytes, kGroup);
  EXPECT_EQ(calls.all_bytes, kGroup);
  EXPECT_THAT(calls.work, HasSubstr("group 0 on s"));
  EXPECT_TRUE(events_.has(REMORA_VOLUME_COPY_BEGUN));
  EXPECT_TRUE(events_.has(REMORA_VOLUME_COPY_DONE));
  EXPECT_EQ(group().copies, 2);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  EXPECT_EQ(read(volume_, bytes.size()), bytes);
}

/// By the same handle: the second one is called while the first one asks whether to go on.
TEST_F(CMirrorTest, OneThreadRepairsAtATime) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  struct Second {
    const remora_volume* volume = nullptr;
    int code = REMORA_OK;
  } second{volume_};
  remora_volume_repair_options options{};
  options.size = sizeof(options);
  options.context = &second;
  options.should_stop = [](void* context) {
    auto& called = *static_cast<Second*>(context);
    called.code = remora_volume_repair(called.volume, nullptr, nullptr, nullptr, nullptr);
    return 1;
  };
  EXPECT_EQ(remora_volume_repair(volume_, &options, nullptr, nullptr, &error_), REMORA_CANCELLED);
  EXPECT_EQ(second.code, REMORA_BUSY);
  EXPECT_EQ(remora_volume_repair(volume_, nullptr, nullptr, nullptr, &error_), REMORA_OK)
      << error_.message;
}

/// The other servers are drained.
TEST_F(CMirrorTest, ACopyWithoutAServerIsLeft) {
  open_with_handler();
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  ASSERT_EQ(remora_volume_repair(volume_, nullptr, nullptr, nullptr, &error_), REMORA_OK)
      << error_.message;
  EXPECT_EQ(group().copies, 2);
  const std::string primary{group().server};
  ASSERT_FALSE(remove_backup().empty());
  const volume::Cluster cluster =
      volume::Cluster::open(volume::parse_uri(cluster_uri()).value()).value();
  const std::string mark = "{\"version\":" + std::to_string(volume::kRecordVersion) + "}";
  for (std::uint32_t i = 0; i < kServers; ++i)
    if (name_of(i) != primary)
      ASSERT_OK(cluster.store().commit(
          {{}, {{cluster.keys().draining(name_of(i)), mark, volume::kNoLease}}}, kLimit));
  const std::vector<unsigned char> bytes = pattern(kStripe, 9);
  ASSERT_EQ(write(volume_, bytes), REMORA_OK) << error_.message;
  char* left = nullptr;
  ASSERT_EQ(remora_volume_repair(volume_, nullptr, nullptr, &left, &error_), REMORA_OK)
      << error_.message;
  ASSERT_NE(left, nullptr);
  EXPECT_THAT(left, HasSubstr("no server has"));
  remora_free(left);
  EXPECT_EQ(group().copies, 1);
}

TEST_F(CMirrorTest, WhatCannotBeRepairedIsRefused) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  char* left = nullptr;
  const auto repair = [&](const remora_volume* volume,
                          const remora_volume_repair_options* options) {
    return remora_volume_repair(volume, options, nullptr, &left, &error_);
  };
  EXPECT_EQ(repair(nullptr, nullptr), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(repair(volume_, nullptr), REMORA_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("no claim of the volume"));
  ASSERT_EQ(claim(volume_), REMORA_OK) << error_.message;
  remora_volume_repair_options options{};
  EXPECT_EQ(repair(volume_, &options), REMORA_INVALID_ARGUMENT);  // no size
  options.size = sizeof(options);
  options.groups_at_once = 65;
  EXPECT_EQ(repair(volume_, &options), REMORA_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.subject, "groups_at_once");
  options.groups_at_once = 0;
  options.zones_at_once = 65;
  EXPECT_EQ(repair(volume_, &options), REMORA_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.subject, "zones_at_once");
  remora_volume_repair_report report{};
  EXPECT_EQ(remora_volume_repair(volume_, nullptr, &report, &left, &error_),
            REMORA_INVALID_ARGUMENT);  // no size
  EXPECT_EQ(left, nullptr);

  ASSERT_EQ(open_other(), REMORA_OK) << error_.message;
  const remora_volume_claim_options second = claim_options("the second one", 1);
  ASSERT_EQ(claim(other_, &second), REMORA_OK) << error_.message;
  EXPECT_EQ(repair(volume_, nullptr), REMORA_STALE_REGION);
  EXPECT_THAT(error_.message, HasSubstr("another client has claimed the volume"));
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
    const bool refused =
        claim(volume_) == REMORA_CLOSED && error_.reason == REMORA_REASON_FORKED &&
        remora_volume_release(volume_, &error_) == REMORA_CLOSED &&
        remora_volume_repair(volume_, nullptr, nullptr, nullptr, &error_) == REMORA_CLOSED &&
        error_.reason == REMORA_REASON_FORKED && remora_volume_claimed(volume_) == 0;
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
  EXPECT_EQ(remora_volume_repair(volume_, nullptr, nullptr, nullptr, &error_), REMORA_UNSUPPORTED);
  EXPECT_EQ(remora_volume_release(volume_, &error_), REMORA_NOT_FOUND);
  EXPECT_EQ(remora_volume_claimed(volume_), 0);
}

}  // namespace
}  // namespace remora::test
