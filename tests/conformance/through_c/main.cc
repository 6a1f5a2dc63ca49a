/// The program of the tests that run through the C API.

#include "helpers.h"
#include "support/child.h"
#include "support/server.h"

int main(int argc, char** argv) {
  using namespace remora::test;  // NOLINT(google-build-using-namespace): the program is theirs
  return run_tests_or_helper(argc, argv,
                             {{"server", serve},
                              {"contend", contend},
                              {"hold", hold},
                              {"endure", endure},
                              {"inherited", inherited},
                              {"write-late", write_late}});
}
