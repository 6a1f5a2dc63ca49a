#include "base/service_state.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace remora {
namespace {

TEST(ServiceState, OpenFailsWithoutDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  // One of the two descriptors at most.
  for (const int left : {0, 1}) {
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next + left);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    ServiceState state;
    const Status opened = state.open();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), Code::kSystem);
    EXPECT_EQ(opened.error().system_errno(), EMFILE);
  }
}

}  // namespace
}  // namespace remora
