#include "client/queue/coroutine_inbox.h"

#include <gtest/gtest.h>
#include <optional>
#include <poll.h>
#include <thread>
#include <vector>

namespace remora::detail {
namespace {

bool has_event(const CoroutineInbox& inbox) {
  pollfd event{.fd = inbox.event_fd(), .events = POLLIN, .revents = 0};
  return ::poll(&event, 1, 0) == 1;
}

struct InboxJob : Resumable {
  InboxJob(int its_number, std::vector<int>& all_that_ran) : number{its_number}, ran{all_that_ran} {
    run = [](Resumable& self) noexcept {
      auto& job = static_cast<InboxJob&>(self);
      job.ran.push_back(job.number);
    };
  }
  int number;
  std::vector<int>& ran;
};

TEST(CoroutineInbox, RunsTheOldestFirstInTheThreadOfItsOwner) {
  CoroutineInbox inbox;
  ASSERT_TRUE(inbox.open());
  std::vector<int> ran;
  InboxJob first{1, ran};
  InboxJob second{2, ran};
  std::thread{[&] {
    inbox.post(first);
    inbox.post(second);
  }}.join();
  EXPECT_TRUE(ran.empty()) << "the posting thread runs nothing";
  EXPECT_EQ(inbox.run_all(), 2U);
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
  EXPECT_EQ(inbox.run_all(), 0U);
}

TEST(CoroutineInbox, AJobAfterArmingMakesTheDescriptorReadable) {
  CoroutineInbox inbox;
  ASSERT_TRUE(inbox.open());
  std::vector<int> ran;
  InboxJob first{1, ran};
  InboxJob second{2, ran};
  inbox.post(first);
  EXPECT_EQ(inbox.run_and_arm(), 1U);
  EXPECT_FALSE(has_event(inbox)) << "the event of the job that has run was taken";
  inbox.post(second);
  EXPECT_TRUE(has_event(inbox));
  EXPECT_EQ(inbox.run_and_arm(), 1U);
  EXPECT_FALSE(has_event(inbox));
}

TEST(CoroutineInbox, DestroyingItRunsTheJobsThatAreLeft) {
  std::vector<int> ran;
  InboxJob left{1, ran};
  std::optional<CoroutineInbox> inbox{std::in_place};
  ASSERT_TRUE(inbox->open());
  inbox->post(left);
  inbox.reset();
  EXPECT_EQ(ran, (std::vector<int>{1}));
}

}  // namespace
}  // namespace remora::detail
