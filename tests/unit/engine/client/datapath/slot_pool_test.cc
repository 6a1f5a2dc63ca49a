#include <gtest/gtest.h>
#include <memory>
#include <utility>

#include <remora/engine/buffer.h>

#include "client/datapath/slot_store.h"

namespace remora::detail {
namespace {

TEST(Slot, ReturnsToItsPoolWhenDestroyedAndOutlivesTheHandle) {
  auto pool = std::make_unique<SlotPool>(SlotStore::create(1, 64).value());
  Slot slot = pool->take();
  EXPECT_TRUE(slot);
  EXPECT_FALSE(pool->take());
  slot = Slot{};
  slot = pool->take();
  EXPECT_TRUE(slot);
  pool.reset();
  slot.bytes()[0] = std::byte{1};  // the slab is still there
}

}  // namespace
}  // namespace remora::detail
