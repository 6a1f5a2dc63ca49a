/// The program of mirrors under faults: tests, a server, or a writer.

#include "fault/processes.h"
#include "mirror_processes.h"
#include "support/child.h"

int main(int argc, char** argv) {
  return remora::test::run_tests_or_helper(argc, argv,
                                           {{"fault-server", remora::fault::fault_server},
                                            {"mirror-writer", remora::fault::mirror_writer}});
}
