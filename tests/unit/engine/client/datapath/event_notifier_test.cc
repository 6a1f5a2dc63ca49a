#include "client/datapath/event_notifier.h"

#include <atomic>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>

namespace remora::detail {
namespace {

bool readable_within(const EventNotifier& notifier, int timeout_ms) {
  pollfd event{.fd = notifier.event(), .events = POLLIN, .revents = 0};
  return ::poll(&event, 1, timeout_ms) == 1;
}

TEST(EventNotifier, IsToldOnceWhileItRestsAndNeverWhileAwake) {
  EventNotifier notifier;
  EXPECT_FALSE(notifier);
  ASSERT_TRUE(notifier.open());
  notifier.notify();  // rests from the beginning
  EXPECT_TRUE(readable_within(notifier, 0));
  notifier.take_event();
  notifier.notify();
  EXPECT_FALSE(readable_within(notifier, 0)) << "has not lain down again";
  notifier.announce_sleep();
  EXPECT_FALSE(readable_within(notifier, 0));
  notifier.announce_awake();
  notifier.notify();
  EXPECT_FALSE(readable_within(notifier, 0));
  notifier.announce_sleep();
  notifier.notify();
  notifier.notify();
  EXPECT_TRUE(readable_within(notifier, 0));
}

TEST(EventNotifier, NothingBroughtIsMissed) {
  EventNotifier notifier;
  ASSERT_TRUE(notifier.open());
  constexpr int kCount = 20'000;
  std::atomic<int> brought{0};
  std::atomic<int> seen{0};
  std::thread bringer{[&] {
    for (int i = 1; i <= kCount; ++i) {
      brought.store(i, std::memory_order_relaxed);
      notifier.notify();
      if (i % 3 == 0)
        while (seen.load() < i) std::this_thread::yield();
    }
  }};
  while (seen < kCount) {
    notifier.announce_sleep();
    if (brought.load(std::memory_order_relaxed) == seen && !readable_within(notifier, 10'000)) {
      ADD_FAILURE() << "slept over " << brought;
      break;
    }
    notifier.take_event();
    notifier.announce_awake();
    seen = brought.load(std::memory_order_relaxed);
  }
  seen = kCount;
  bringer.join();
}

}  // namespace
}  // namespace remora::detail
