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
  if (!needs_device_thread() || ::access("/sys/class/infiniband", F_OK) != 0)
    GTEST_SKIP() << "no RDMA here, or a librdmacm that needs no such thread";
  const pid_t first = OnDeviceThread<&thread_of_call>::call();
  EXPECT_NE(first, ::gettid());
  std::vector<pid_t> found(8);
  std::vector<std::thread> callers;
  for (pid_t& each : found)
    callers.emplace_back([&each] { each = OnDeviceThread<&thread_of_call>::call(); });
  for (std::thread& each : callers) each.join();
  for (const pid_t each : found) EXPECT_EQ(each, first);
}

TEST(DeviceThreadTest, KnowsTheLibrdmacmThatSortsWholeAddresses) {
  EXPECT_TRUE(sorts_whole_addresses("/usr/lib/x86_64-linux-gnu/librdmacm.so.1.3.52.0"));
  EXPECT_TRUE(sorts_whole_addresses("/usr/lib/librdmacm.so.1.3.56.1"));
  EXPECT_TRUE(sorts_whole_addresses("/opt/librdmacm.so.1.4.100.0"));
  EXPECT_FALSE(sorts_whole_addresses("/usr/lib/x86_64-linux-gnu/librdmacm.so.1.3.44.0"));
  EXPECT_FALSE(sorts_whole_addresses("/usr/lib/librdmacm.so.1.3.51.9"));
}

TEST(DeviceThreadTest, TakesALibraryWithoutAVersionForOneThatDoesNot) {
  for (const char* const name :
       {"/usr/lib/librdmacm.so.1", "/usr/lib/librdmacm.so.1.3", "/usr/lib/librdmacm.so.1.3.",
        "/usr/lib/librdmacm.so.1.x.y", "/usr/bin/program", ""})
    EXPECT_FALSE(sorts_whole_addresses(name)) << name;
}

}  // namespace
}  // namespace remora::verbs::detail
