/// The fault tests' program: tests, one of their other processes, or a soak.

#include "processes.h"
#include "support/child.h"

int main(int argc, char** argv) {
  using namespace remora::fault;  // NOLINT(google-build-using-namespace): the program is theirs
  return remora::test::run_tests_or_helper(
      argc, argv,
      {{"fault-server", fault_server}, {"load", fault_load}, {"lock-holder", lock_holder}});
}
