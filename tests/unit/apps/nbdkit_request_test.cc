// Requests of the plugin of nbdkit whose server, client or library fails: apps/nbdkit/request.h,
// device.h and shared_queue.h over stand-ins for libremora and nbdkit.

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>

#include "nbdkit_disk.h"
#include "nbdkit_fakes.h"
#include "support/eventually.h"

extern "C" {
#include "nbdkit/shared_queue.h"
}

namespace remora::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

struct CloseDisk {
  void operator()(Disk* disk) const noexcept { disk_close(disk); }
};
struct FreeQueue {
  void operator()(SharedQueue* queue) const noexcept { shared_queue_free(queue); }
};

class NbdkitTest : public testing::Test {
 protected:
  NbdkitTest() { fakes = &fakes_; }
  ~NbdkitTest() override { fakes = nullptr; }

  NbdkitFakes fakes_;
};

class NbdkitRequest : public NbdkitTest {
 protected:
  void SetUp() override { ASSERT_NE(disk_, nullptr); }
  [[nodiscard]] int write(std::size_t connection = 0) {
    return disk_write(disk_.get(), connection, 0, 4096);
  }

  const std::unique_ptr<Disk, CloseDisk> disk_{disk_open(30 * kSecondNs)};
};

TEST_F(NbdkitRequest, AnAttemptHasNothingOfTheErrorOfAnEarlierOne) {
  int attempts = 0;
  fakes_.write = [&](remora_error* error) -> int {
    if (++attempts == 2) return REMORA_OUT_OF_MEMORY;  // leaves the error as it is
    error->reason = REMORA_REASON_NO_RIGHT;
    (void)std::snprintf(error->message, sizeof(error->message), "the lane broke");
    return REMORA_INDETERMINATE;
  };
  EXPECT_EQ(write(), -1);
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(fakes_.error, ENOMEM);
  EXPECT_EQ(fakes_.lines().back(), "out of memory");
}

TEST_F(NbdkitRequest, EachFailureHasItsErrno) {
  struct Failure {
    int code;
    int reason;
    int error;
  };
  // Of a time-out nbdkit would make EINVAL. The write in doubt is the last one: others would wait.
  constexpr std::array<Failure, 11> kFailures{
      {{REMORA_NO_RIGHT, REMORA_REASON_NONE, EROFS},
       {REMORA_ACCESS_REFUSED, REMORA_REASON_NO_RIGHT, EROFS},
       {REMORA_OUT_OF_RANGE, REMORA_REASON_NONE, ENOSPC},
       {REMORA_ACCESS_REFUSED, REMORA_REASON_OUT_OF_RANGE, ENOSPC},
       {REMORA_CONNECTION_LOST, REMORA_REASON_NONE, ESHUTDOWN},
       {REMORA_CLOSED, REMORA_REASON_NONE, ESHUTDOWN},
       {REMORA_OUT_OF_MEMORY, REMORA_REASON_NONE, ENOMEM},
       {REMORA_STALE_REGION, REMORA_REASON_NONE, EIO},
       {REMORA_ACCESS_REFUSED, REMORA_REASON_REVOKED, EIO},
       {REMORA_TIMED_OUT, REMORA_REASON_NONE, EIO},
       {REMORA_INDETERMINATE, REMORA_REASON_NONE, EIO}}};
  fakes_.nanosleep = [] { return -1; };  // nothing is waited for, and nothing repeated
  for (const Failure& failure : kFailures) {
    fakes_.write = [&failure](remora_error* error) {
      error->reason = failure.reason;
      return failure.code;
    };
    EXPECT_EQ(write(), -1);
    EXPECT_EQ(fakes_.error, failure.error) << failure.code << ", " << failure.reason;
  }
}

TEST_F(NbdkitRequest, IsNotSentWhenItsClientLeavesWhileItWaits) {
  fakes_.connected = 0;
  fakes_.settled = [] { return REMORA_TIMED_OUT; };
  fakes_.nanosleep = [] { return -1; };
  EXPECT_EQ(write(), -1);
  EXPECT_THAT(fakes_.events(), ElementsAre("settled"));
  EXPECT_EQ(fakes_.error, ESHUTDOWN);
  EXPECT_THAT(fakes_.lines().back(), HasSubstr("not sent"));
}

TEST_F(NbdkitRequest, BeginsAfterAWriteInDoubtHasSettled) {
  fakes_.write = [](remora_error* /*error*/) { return REMORA_INDETERMINATE; };
  fakes_.settled = [] { return REMORA_TIMED_OUT; };
  fakes_.nanosleep = [] { return -1; };
  EXPECT_EQ(write(), -1);
  EXPECT_THAT(fakes_.events(), ElementsAre("write", "settled"));

  fakes_.write = [](remora_error* /*error*/) { return REMORA_OK; };
  fakes_.settled = [] { return REMORA_OK; };
  fakes_.nanosleep = [] { return 0; };
  EXPECT_EQ(write(1), 0);
  EXPECT_EQ(write(1), 0);
  EXPECT_THAT(fakes_.events(), ElementsAre("write", "settled", "settled", "write", "write"));
}

TEST_F(NbdkitRequest, AWriteWaitsForAnOverlappingOneOfAnotherConnection) {
  std::atomic<bool> begun{false};
  std::atomic<bool> may_end{false};
  std::atomic<int> asked{0};
  fakes_.write = [&](remora_error* /*error*/) {
    begun = true;
    while (!may_end) std::this_thread::yield();
    return REMORA_OK;
  };
  fakes_.nanosleep = [&] {
    ++asked;
    return 0;
  };
  std::jthread first{[this] { EXPECT_EQ(write(0), 0); }};
  while (!begun) std::this_thread::yield();
  std::jthread second{[this] { EXPECT_EQ(write(1), 0); }};
  while (asked == 0) std::this_thread::yield();
  EXPECT_THAT(fakes_.events(), ElementsAre("write"));
  may_end = true;
  first.join();
  second.join();
  EXPECT_THAT(fakes_.events(), ElementsAre("write", "write"));
}

TEST_F(NbdkitRequest, ZeroesALongRangeInParts) {
  EXPECT_EQ(disk_zero(disk_.get(), 0, 0, 100 * kMiB), 0);
  EXPECT_THAT(fakes_.zeroed, ElementsAre(64 * kMiB, 36 * kMiB));
}

using NbdkitDevice = NbdkitTest;

TEST_F(NbdkitDevice, WaitsForAServerThatGoesWhileNbdkitStarts) {
  disk_close(disk_open(30 * kSecondNs));
  EXPECT_EQ(fakes_.connect_for_ns, 10 * kSecondNs);
  disk_close(disk_open(2 * kSecondNs));
  EXPECT_EQ(fakes_.connect_for_ns, 2 * kSecondNs);
}

class NbdkitRepair : public NbdkitTest {
 protected:
  [[nodiscard]] bool is_logged(const std::string& text) {
    for (const std::string& line : fakes_.lines())
      if (line.find(text) != std::string::npos) return true;
    return false;
  }
  /// What the volume tells when it has removed a copy.
  void lose_a_copy() {
    fakes_.copies = 1;
    remora_volume_event event{};
    event.size = sizeof(event);
    event.server = "s2";
    event.change = REMORA_VOLUME_MEMBER_REMOVED;
    fakes_.on_event(fakes_.event_context, &event);
  }
};

TEST_F(NbdkitRepair, CopiesAreMadeAtTheStartAndAfterEachLoss) {
  fakes_.copies = 1;
  fakes_.repair = [&](const remora_volume_repair_options& options,
                      remora_volume_repair_report* report) -> int {
    remora_volume_progress progress{};
    progress.work = "group 0 on s3, 1 of 3 MiB";
    options.on_progress(options.context, &progress);
    report->copies_made = 1;
    report->bytes_copied = 3 * kMiB;
    fakes_.copies = 2;
    return REMORA_OK;
  };
  const std::unique_ptr<Disk, CloseDisk> disk{disk_open_mirror()};
  ASSERT_NE(disk, nullptr);
  EXPECT_TRUE(eventually([&] { return is_logged("are there again: 1 made, 3 MiB"); }));
  lose_a_copy();
  EXPECT_TRUE(eventually([&] { return fakes_.events().size() == 4; }));
  EXPECT_EQ(fakes_.copies, 2);
  EXPECT_TRUE(is_logged("they are made anew where a server has room"));
}

TEST_F(NbdkitRepair, TheEndStopsARepairBeforeItReleasesTheMirror) {
  std::atomic<bool> begun{false};
  fakes_.repair = [&](const remora_volume_repair_options& options,
                      remora_volume_repair_report* /*report*/) -> int {
    begun = true;
    while (options.should_stop(options.context) == 0) std::this_thread::yield();
    return REMORA_CANCELLED;
  };
  std::unique_ptr<Disk, CloseDisk> disk{disk_open_mirror()};
  ASSERT_NE(disk, nullptr);
  lose_a_copy();
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  disk.reset();
  EXPECT_THAT(fakes_.events(), ElementsAre("repair", "repaired", "release"));
  EXPECT_FALSE(is_logged("copies are missing")) << "an end is no obstacle";
}

class NbdkitQueue : public NbdkitTest {
 protected:
  void SetUp() override { ASSERT_NE(queue_, nullptr); }
  [[nodiscard]] int write() {
    const std::array<char, 512> bytes{};
    remora_error error{};
    error.size = sizeof(error);
    return shared_queue_write(queue_.get(), 0, bytes.data(), bytes.size(), &error);
  }

  const Memory memory_{};  // of a region
  const std::unique_ptr<SharedQueue, FreeQueue> queue_{shared_queue_create(&memory_, 4)};
};

TEST_F(NbdkitQueue, ASubmitThatFailsIsMadeAgain) {
  fakes_.submits = {REMORA_BUSY, REMORA_BUSY};
  EXPECT_EQ(write(), REMORA_OK);
  EXPECT_EQ(fakes_.submit_count, 3);
}

TEST_F(NbdkitQueue, AQueueThatIsClosedEndsItsRequests) {
  fakes_.wait_code = REMORA_CLOSED;
  EXPECT_EQ(write(), REMORA_CLOSED);
  EXPECT_EQ(write(), REMORA_CLOSED);
}

TEST_F(NbdkitQueue, AQueueThatTakesNothingEndsItsRequests) {
  fakes_.takes = false;
  EXPECT_EQ(write(), REMORA_CLOSED);
}

}  // namespace
}  // namespace remora::test
