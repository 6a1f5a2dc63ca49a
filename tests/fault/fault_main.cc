/// The fault tests' program: tests, one of their other processes, or a soak.

#include <cstdlib>
#include <cstring>
#include <string>

#include "processes.h"
#include "support/child.h"

/// `--soak SECONDS` is the soak, over the transports of REMORA_TEST_TRANSPORT, and nothing else.
int main(int argc, char** argv) {
  using namespace remora::fault;  // NOLINT(google-build-using-namespace): the program is theirs
  std::string filter = "--gtest_filter=*SoakTest*";
  if (argc == 3 && std::strcmp(argv[1], "--soak") == 0) {
    ::setenv("REMORA_FAULT_SOAK_SECONDS", argv[2], 1);
    argv[1] = filter.data();
    argc = 2;
  }
  return remora::test::run_tests_or_helper(argc, argv,
                                           {{"fault-server", fault_server},
                                            {"load", fault_load},
                                            {"lock-holder", lock_holder},
                                            {"pinner", fault_pinner},
                                            {"poor", fault_poor}});
}
