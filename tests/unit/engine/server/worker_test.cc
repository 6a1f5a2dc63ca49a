/// The worker runs each job once, in order, and ends when nothing is left to do.

#include "server/worker.h"

#include <future>
#include <gtest/gtest.h>
#include <string>

#include "support/eventually.h"

namespace remora::detail {
namespace {

constexpr auto kNothingLeft = [] { return false; };

TEST(WorkerTest, RunsJobsInOrder) {
  Worker worker;
  std::string ran;
  for (const char* name : {"a", "b", "c"})
    EXPECT_TRUE(worker.enqueue([&ran, name] { ran += name; })) << "before it is started, too";
  EXPECT_EQ(worker.jobs_waiting(), 3U);
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.stop();
  EXPECT_EQ(ran, "abc");
  EXPECT_EQ(worker.jobs_waiting(), 0U);
}

TEST(WorkerTest, RunsJobsOfClientsThatConnectAfterTheOthers) {
  Worker worker;
  std::string ran;
  for (const char* name : {"a", "b"}) worker.enqueue_connecting([&ran, name] { ran += name; });
  for (const char* name : {"1", "2"}) worker.enqueue([&ran, name] { ran += name; });
  EXPECT_EQ(worker.jobs_waiting(), 4U);
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.stop();
  EXPECT_EQ(ran, "12ab");
}

TEST(WorkerTest, RunsAJobOfAClientThatConnectsAfterSoManyOthers) {
  Worker worker;
  std::string ran;
  for (const char* name : {"a", "b"}) worker.enqueue_connecting([&ran, name] { ran += name; });
  for (std::uint32_t i = 0; i < 2 * Worker::kMaxOvertaking + 1; ++i)
    worker.enqueue([&ran] { ran += "."; });
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.stop();
  const std::string each(Worker::kMaxOvertaking, '.');
  EXPECT_EQ(ran, each + "a" + each + "b" + ".");
}

TEST(WorkerTest, RunsJobsThatOtherJobsAddWhileItStops) {
  Worker worker;
  std::string ran;
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.enqueue([&] {
    ran += "a";
    worker.enqueue([&] { ran += "b"; });
  });
  worker.stop();
  EXPECT_EQ(ran, "ab");
}

TEST(WorkerTest, AsksBeforeItEndsUntilNothingIsLeft) {
  Worker worker;
  std::string ran;
  int left = 2;
  ASSERT_TRUE(worker.start([&] {
    if (left == 0) return false;
    --left;
    worker.enqueue([&] { ran += "a"; });
    return true;
  }));
  worker.stop();
  EXPECT_EQ(left, 0);
  EXPECT_EQ(ran, "aa");
}

TEST(WorkerTest, RefusesJobsOnceItHasEnded) {
  Worker worker;
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.stop();
  worker.stop();
  bool ran = false;
  EXPECT_FALSE(worker.enqueue([&ran] { ran = true; }));
  EXPECT_FALSE(ran);
}

TEST(WorkerTest, StopsWithoutAThread) {
  Worker worker;
  worker.stop();
  EXPECT_EQ(worker.job_age(), std::chrono::seconds{0});
}

TEST(WorkerTest, JobThatTakesAStepMakesProgressAndStaysAsOld) {
  Worker worker;
  std::promise<void> step;
  std::promise<void> stepped;
  std::promise<void> end;
  worker.enqueue([&] {
    step.get_future().wait();
    worker.note_step();
    stepped.set_value();
    end.get_future().wait();
  });
  ASSERT_TRUE(worker.start(kNothingLeft));
  EXPECT_TRUE(test::eventually([&] { return worker.progress_age() >= std::chrono::seconds{1}; }));
  step.set_value();
  stepped.get_future().wait();
  // In this order: both grow.
  const auto progress = worker.progress_age();
  EXPECT_LT(progress, worker.job_age());
  end.set_value();
  worker.stop();
  EXPECT_EQ(worker.progress_age(), std::chrono::seconds{0});
}

TEST(WorkerTest, LetsGoOfAJobBeforeTheNextOneBegins) {
  Worker worker;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = held;
  bool gone = false;
  worker.enqueue([held = std::move(held)] {});
  worker.enqueue([&] { gone = seen.expired(); });
  ASSERT_TRUE(worker.start(kNothingLeft));
  worker.stop();
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace remora::detail
