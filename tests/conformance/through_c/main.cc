/// The program of the tests that run through the C API.

#include "support/child.h"
#include "support/server.h"

int main(int argc, char** argv) {
  using namespace remora::test;  // NOLINT(google-build-using-namespace): the program is theirs
  return run_tests_or_helper(argc, argv, {{"server", serve}});
}
