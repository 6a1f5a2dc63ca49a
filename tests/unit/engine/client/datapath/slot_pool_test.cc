#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <span>
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

TEST(SlotPool, SeveralSlotsAreTakenAtOnce) {
  SlotPool pool{SlotStore::create(5, 64).value()};
  const Slot other = pool.take();
  std::array<Slot, 3> slots;
  EXPECT_EQ(pool.take(slots), 3U);
  std::set<const std::byte*> places{other.bytes().data()};
  for (const Slot& slot : slots) {
    EXPECT_EQ(slot.bytes().size(), 64U);
    EXPECT_TRUE(places.insert(slot.bytes().data()).second) << "a slot is taken once";
  }
  EXPECT_TRUE(pool.take()) << "it is given back at once";

  std::array<Slot, 3> rest;
  EXPECT_EQ(pool.take(rest), 1U) << "one was left";
  EXPECT_TRUE(rest[0]);
  EXPECT_FALSE(rest[1]);
  EXPECT_TRUE(rest[2].bytes().empty());
  std::array<Slot, 2> none;
  EXPECT_EQ(pool.take(none), 0U);
  EXPECT_EQ(pool.take(std::span<Slot>{}), 0U);

  EXPECT_EQ(pool.take(slots), 3U) << "the slots of the elements were given back before";
  EXPECT_FALSE(pool.take());
}

TEST(SlotPool, PoolThatWasMovedFromHasNoSlots) {
  SlotPool pool{SlotStore::create(2, 64).value()};
  std::array<Slot, 1> slots{pool.take()};
  const SlotPool moved = std::move(pool);
  // NOLINTNEXTLINE(bugprone-use-after-move): documented
  EXPECT_EQ(pool.take(slots), 0U);
  EXPECT_FALSE(slots[0]) << "it was given back";
}

}  // namespace
}  // namespace remora::detail
