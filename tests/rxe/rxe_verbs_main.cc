#include <gtest/gtest.h>

#include "rxe_child.h"

int main(int argc, char** argv) {
  if (const auto status = remora::test::run_role(argc, argv)) return *status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
