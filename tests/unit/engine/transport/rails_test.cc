/// Which rail each lane goes over.

#include "transport/rails.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace remora::transport {
namespace {

using Turns = std::vector<std::size_t>;

TEST(RailsOfLanes, LanesTakeTheRailsInTheOrderOfTheirHomes) {
  EXPECT_EQ(rails_of_lanes({"a", "b"}, {"a", "b"}), (Turns{0, 1}));
  EXPECT_EQ(rails_of_lanes({"a", "b"}, {"b", "a"}), (Turns{1, 0}))
      << "whichever the control channel is on";
}

TEST(RailsOfLanes, LaneWhoseHomeDoesNotAnswerGoesOverAnotherRail) {
  EXPECT_EQ(rails_of_lanes({"a", "b"}, {"a"}), (Turns{0, 0}));
  EXPECT_EQ(rails_of_lanes({"a", "b"}, {"a", "c"}), (Turns{0, 1})) << "that is no lane's home";
  EXPECT_EQ(rails_of_lanes({"a", "b", "c"}, {"c"}), (Turns{0, 0, 0}));
  EXPECT_EQ(rails_of_lanes({"a", "b", "c", "d"}, {"c", "d"}), (Turns{0, 1, 0, 1})) << "in turn";
}

TEST(RailsOfLanes, RailsThatAreNoHomeAreUsed) {
  EXPECT_EQ(rails_of_lanes({}, {"a"}), (Turns{0}));
  EXPECT_EQ(rails_of_lanes({"b"}, {"a", "b"}), (Turns{1, 0}));
}

TEST(DeviceNumber, IsZeroOfNoNameOnly) {
  EXPECT_EQ(device_number(""), 0U);
  EXPECT_NE(device_number("rxe0"), 0U);
  EXPECT_NE(device_number("rxe0"), device_number("rxe1"));
}

}  // namespace
}  // namespace remora::transport
