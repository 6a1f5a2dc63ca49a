#include "client/datapath/event_notifier.h"

#include <atomic>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>

namespace remora::detail {
namespace {

bool readable_within(const EventNotifier& watcher, int timeout_ms) {
  pollfd event{.fd = watcher.event(), .events = POLLIN, .revents = 0};
  return ::poll(&event, 1, timeout_ms) == 1;
}

TEST(EventNotifier, IsToldOnceWhileItRestsAndNeverWhileAwake) {
  EventNotifier watcher;
  EXPECT_FALSE(watcher);
  ASSERT_TRUE(watcher.open());
  watcher.tell();  // rests from the beginning
  EXPECT_TRUE(readable_within(watcher, 0));
  watcher.clear();
  watcher.tell();
  EXPECT_FALSE(readable_within(watcher, 0)) << "has not lain down again";
  watcher.rest();
  EXPECT_FALSE(readable_within(watcher, 0));
  watcher.rise();
  watcher.tell();
  EXPECT_FALSE(readable_within(watcher, 0));
  watcher.rest();
  watcher.tell();
  watcher.tell();
  EXPECT_TRUE(readable_within(watcher, 0));
}

TEST(EventNotifier, NothingBroughtIsMissed) {
  EventNotifier watcher;
  ASSERT_TRUE(watcher.open());
  constexpr int kCount = 20'000;
  std::atomic<int> brought{0};
  std::atomic<int> seen{0};
  std::thread bringer{[&] {
    for (int i = 1; i <= kCount; ++i) {
      brought.store(i, std::memory_order_relaxed);
      watcher.tell();
      if (i % 3 == 0)
        while (seen.load() < i) std::this_thread::yield();
    }
  }};
  while (seen < kCount) {
    watcher.rest();
    if (brought.load(std::memory_order_relaxed) == seen && !readable_within(watcher, 10'000)) {
      ADD_FAILURE() << "slept over " << brought;
      break;
    }
    watcher.clear();
    watcher.rise();
    seen = brought.load(std::memory_order_relaxed);
  }
  seen = kCount;
  bringer.join();
}

}  // namespace
}  // namespace remora::detail
