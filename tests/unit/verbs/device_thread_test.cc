/// Calls that list devices are made by one thread.

#include "device_thread.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace remora::verbs::detail {
namespace {

int add_failing(int a, int* b) {
  const int before = errno;
  errno = EMFILE;
  return before == EAGAIN ? a + (*b)++ : -1;
}
pid_t thread_of_call() { return ::gettid(); }

TEST(DeviceThreadTest, ArgumentsAnswerAndErrnoGoThereAndBack) {
  int two = 2;
  errno = EAGAIN;
  EXPECT_EQ((OnDeviceThread<&add_failing>::call(1, &two)), 3);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(two, 3);
}

TEST(DeviceThreadTest, AllCallersHaveOneThreadWhereThereIsRdma) {
  if (::access("/sys/class/infiniband", F_OK) != 0) GTEST_SKIP() << "no RDMA here";
  const pid_t first = OnDeviceThread<&thread_of_call>::call();
  EXPECT_NE(first, ::gettid());
  std::vector<pid_t> found(8);
  std::vector<std::thread> callers;
  for (pid_t& each : found)
    callers.emplace_back([&each] { each = OnDeviceThread<&thread_of_call>::call(); });
  for (std::thread& each : callers) each.join();
  for (const pid_t each : found) EXPECT_EQ(each, first);
}

}  // namespace
}  // namespace remora::verbs::detail
