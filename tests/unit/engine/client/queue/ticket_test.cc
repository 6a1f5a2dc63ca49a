#include <gtest/gtest.h>

#include <remora/engine/queue.h>

namespace remora::detail {
namespace {

TEST(Ticket, GenerationZeroIsPassedOver) {
  static_assert(Ticket{5, 0xffffffff}.next() == Ticket{5, 1});
  static_assert(Ticket{5, 7}.next() == Ticket{5, 8});
  static_assert(!Ticket{5, 0} && Ticket{0, 1});
  const Ticket ticket{7, 9};
  EXPECT_EQ(ticket.index(), 7U);
  EXPECT_EQ(ticket.generation(), 9U);
}

}  // namespace
}  // namespace remora::detail
