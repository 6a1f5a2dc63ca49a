/// What is opened while the standard descriptors are closed.

#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <remora/standard_descriptors.h>

#include "standard_descriptors_taken.h"

namespace remora::verbs::detail {
namespace {

using remora::detail::above_standard;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

/// In a process of its own. True: every check held.
template <typename Checks>
void without_standard(Checks checks) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  ::_exit(checks() ? 0 : 1);
}

int make_event() { return ::eventfd(0, EFD_CLOEXEC); }

TEST(StandardDescriptorsTest, OneOfThemIsMovedAboveAndItsNumberIsFreeAgain) {
  EXPECT_EXIT(without_standard([] {
                const int made = make_event();
                const int moved = above_standard(made);
                return made == 0 && moved > 2 && closes_on_exec(moved) && !is_open(made) &&
                       above_standard(moved) == moved;
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(StandardDescriptorsTest, FailureKeepsItsErrno) {
  errno = EMFILE;
  EXPECT_EQ(above_standard(-1), -1);
  EXPECT_EQ(errno, EMFILE);
}

TEST(StandardDescriptorsTest, OneThatCannotBeMovedIsClosed) {
  EXPECT_EXIT(without_standard([] {
                const rlimit three{3, 3};
                if (::setrlimit(RLIMIT_NOFILE, &three) != 0) return false;
                const int made = make_event();
                errno = 0;
                return made == 0 && above_standard(made) == -1 &&
                       (errno == EMFILE || errno == EINVAL) && !is_open(made);
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(StandardDescriptorsTest, CallIntoALibraryMakesNoneOfThem) {
  EXPECT_EXIT(without_standard([] {
                const int made = AboveStandard<&make_event>::call();
                return made > 2 && !is_open(0) && !is_open(1) && !is_open(2);
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(StandardDescriptorsTest, PlacesStayUntilTheLastCallHasReturned) {
  EXPECT_EXIT(without_standard([] {
                auto outer = std::make_unique<StandardDescriptorsTaken>();
                auto inner = std::make_unique<StandardDescriptorsTaken>();
                outer.reset();
                const bool still_taken = is_open(0) && is_open(1) && is_open(2);
                errno = EBUSY;
                inner.reset();
                return still_taken && errno == EBUSY && !is_open(0) && !is_open(1) && !is_open(2);
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(StandardDescriptorsTest, WhatTheApplicationPutsThereMeanwhileStays) {
  EXPECT_EXIT(without_standard([] {
                auto taken = std::make_unique<StandardDescriptorsTaken>();
                ::dup2(make_event(), STDOUT_FILENO);
                taken.reset();
                return !is_open(0) && is_open(1) && !is_open(2);
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(StandardDescriptorsTest, OpenOnesAreLeftAlone) {
  EXPECT_EXIT(
      {
        ::close(STDOUT_FILENO);
        const int input = ::dup(STDERR_FILENO);  // takes 1
        { const StandardDescriptorsTaken taken; }
        ::_exit(input == 1 && is_open(0) && is_open(1) && is_open(2) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace remora::verbs::detail
