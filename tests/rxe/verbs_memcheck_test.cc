// The suites of one process under memcheck on a device, with the suppressions that are installed.
#include <filesystem>
#include <utility>

#include <remora/sanitizers.h>

#include "rxe_child.h"
#include "rxe_fixture.h"

namespace remora::test {
namespace {

// A name and the filter that selects them. Starting under memcheck takes longer than the tests.
using Suites = std::pair<const char*, const char*>;

class VerbsMemcheck : public RxeTest, public testing::WithParamInterface<Suites> {};

TEST_P(VerbsMemcheck, FindsNothing) {
#if REMORA_ADDRESS_SANITIZER || REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "a sanitized program does not run under valgrind";
#endif
  if (RxeChild{{"valgrind", "--version"}}.wait() != 0)
    GTEST_SKIP() << "valgrind is not installed here";
  const std::string suppressions = "--suppressions=" VERBS_SUPPRESSIONS;
  RxeChild child{{"valgrind", "--quiet", "--error-exitcode=9", "--log-fd=1", "--leak-check=full",
                  "--errors-for-leak-kinds=definite,indirect,possible", suppressions,
                  std::filesystem::read_symlink("/proc/self/exe").string(), "--gtest_brief=1",
                  std::string{"--gtest_filter="} + GetParam().second}};
  std::string text;
  while (const auto line = child.line(std::chrono::seconds{100})) text += *line + "\n";
  const auto status = child.wait();
  ASSERT_TRUE(status.has_value()) << "it did not end\n" << text;
  EXPECT_EQ(*status, 0) << text;
  EXPECT_NE(text.find("[  PASSED  ] "), std::string::npos) << text;
  EXPECT_EQ(text.find("[  PASSED  ] 0 tests"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Suites, VerbsMemcheck,
                         testing::Values(Suites{"Loopback", "VerbsLoopback.*"},
                                         Suites{"Objects", "VerbsApi.*:VerbsMemory.*"}),
                         [](const auto& suites) { return std::string{suites.param.first}; });

}  // namespace
}  // namespace remora::test
