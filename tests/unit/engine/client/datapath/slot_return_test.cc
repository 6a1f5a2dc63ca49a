#include "client/datapath/slot_return.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <set>

#include "client/datapath/slot_store.h"

namespace remora::detail {
namespace {

TEST(SlotReturn, GivesBackAllOfSeveralPoolsAndPassesOverEmptyOnes) {
  SlotPool one{SlotStore::create(3, 64).value()};
  SlotPool other{SlotStore::create(2, 64).value()};
  for (int round = 0; round < 3; ++round) {
    std::array<Slot, 6> slots{one.take(), one.take(),   other.take(),
                              Slot{},     other.take(), one.take()};
    EXPECT_FALSE(one.take());
    EXPECT_FALSE(other.take());
    SlotReturn back;
    for (Slot& slot : slots) back.add(slot);
    for (const Slot& slot : slots) EXPECT_FALSE(slot);
  }
  std::array<Slot, 5> again{one.take(), one.take(), one.take(), other.take(), other.take()};
  std::set<const std::byte*> places;
  for (const Slot& slot : again) {
    EXPECT_TRUE(slot);
    places.insert(slot.bytes().data());
  }
  EXPECT_EQ(places.size(), again.size()) << "none is out twice";
}

TEST(SlotReturn, LastSlotsOfAPoolThatIsGoneTakeItsMemoryWithThem) {
  auto pool = std::make_unique<SlotPool>(SlotStore::create(2, 64).value());
  std::array<Slot, 2> slots{pool->take(), pool->take()};
  pool.reset();
  SlotReturn back;
  for (Slot& slot : slots) back.add(slot);  // the sanitizers would tell of a leak
}

}  // namespace
}  // namespace remora::detail
