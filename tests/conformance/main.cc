/// The suite's program: tests, or one of the other processes that tests need.

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
                              {"fork", fork_under_load},
                              {"inherited", inherited},
                              {"closed-standard", closed_standard},
                              {"write-late", write_late}});
}
