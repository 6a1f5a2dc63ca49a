#include <cerrno>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string>

#include <remora/start_thread.h>

namespace remora {
namespace {

TEST(StartThread, RunsWhatItIsGivenUnderItsName) {
  std::string name(16, '\0');
  auto thread = detail::start_thread("remora-test", [&name] {
    // Its name is given to it from outside, at any time.
    while (std::string{name.c_str()} != "remora-test")
      ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  });
  ASSERT_TRUE(thread) << thread.error();
  thread->join();
  EXPECT_STREQ(name.c_str(), "remora-test");
}

TEST(StartThread, ErrorNamesTheThreadTheLimitAndWhatToDo) {
  const Error error = detail::no_thread("remora-test", EAGAIN);
  EXPECT_EQ(error.code(), Code::kSystem);
  EXPECT_EQ(error.reason(), Reason::kNoThread);
  EXPECT_EQ(error.system_errno(), EAGAIN);
  EXPECT_TRUE(error.subject().starts_with("thread remora-test: ")) << error;
  for (const char* word : {"ulimit -u", "pids.max", "TasksMax", "threads-max"})
    EXPECT_NE(error.remedy().find(word), std::string_view::npos) << word;
}

}  // namespace
}  // namespace remora
