#include "client/datapath/local_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>

#include <remora/engine/buffer.h>

namespace remora::detail {
namespace {

TEST(RegisteredMemory, PartOutsideIsNotValid) {
  std::array<std::byte, 16> bytes{};
  const RegisteredMemory memory{std::make_shared<LocalMemory>(std::span{bytes})};
  EXPECT_EQ((Target{memory, 8, 8}.bytes().data()), memory.bytes().data() + 8);
  EXPECT_EQ((Target{memory, 9, 8}.bytes().data()), nullptr);
  EXPECT_EQ((Source{memory, SIZE_MAX, 2}.bytes().data()), nullptr);
  EXPECT_EQ((Source{RegisteredMemory{}, 0, 1}.bytes().data()), nullptr);
}

}  // namespace
}  // namespace remora::detail
