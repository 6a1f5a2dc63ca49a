#include "client/queue/resumable_list.h"

#include <gtest/gtest.h>
#include <vector>

namespace remora::detail {
namespace {

/// Notes its number when it runs, and then appends `next`, if there is one.
struct NumberedJob : Resumable {
  NumberedJob(int its_number, std::vector<int>& all_that_ran, ResumableList& its_list)
      : number{its_number}, ran{all_that_ran}, list{its_list} {
    run = [](Resumable& self) noexcept {
      auto& job = static_cast<NumberedJob&>(self);
      job.ran.push_back(job.number);
      if (job.appended != nullptr) job.list.append(*job.appended);
    };
  }
  int number;
  std::vector<int>& ran;
  ResumableList& list;
  Resumable* appended = nullptr;
};

TEST(ResumableList, RunsInTheOrderOfAppending) {
  ResumableList list;
  std::vector<int> ran;
  NumberedJob first{1, ran, list};
  NumberedJob second{2, ran, list};
  NumberedJob third{3, ran, list};
  for (NumberedJob* each : {&first, &second, &third}) list.append(*each);
  EXPECT_EQ(list.size(), 3U);
  while (!list.empty()) list.run_first();
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(list.size(), 0U);
}

TEST(ResumableList, AJobMayAppendItselfAndTheLastOneAnother) {
  ResumableList list;
  std::vector<int> ran;
  NumberedJob again{1, ran, list};
  again.appended = &again;
  list.append(again);
  list.run_first();  // it has been removed before it runs
  ASSERT_EQ(list.size(), 1U);
  NumberedJob other{2, ran, list};
  again.appended = &other;
  list.run_first();
  ASSERT_EQ(list.size(), 1U);
  list.run_first();
  EXPECT_EQ(ran, (std::vector<int>{1, 1, 2}));
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace remora::detail
