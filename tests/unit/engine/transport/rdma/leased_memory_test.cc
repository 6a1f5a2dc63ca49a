/// The pool, registered for windows.

#include "transport/rdma/leased_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "unit/engine/transport/rdma/windows_fixture.h"

namespace remora::transport::rdma {
namespace {

TEST_F(RdmaWindowsTest, LeasedPiecesHaveNoRemoteRightsAndGoBeforeWhatKeepsThem) {
  std::string alive_at_the_end = "never";
  {
    const auto leased = acquire_lease(std::shared_ptr<void>{
        memory_.data(), [&](void* /*bytes*/) { alive_at_the_end = fake_.live(); }});
    ASSERT_EQ(fake_.registered.size(), 2U);
    for (const auto& each : fake_.registered)
      EXPECT_EQ(each.access,
                static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    EXPECT_EQ(registrations_.used(), 2U);
  }
  EXPECT_EQ(alive_at_the_end.find("mr"), std::string::npos) << alive_at_the_end;
  EXPECT_EQ(registrations_.used(), 0U);
}

TEST_F(RdmaWindowsTest, StretchIsFoundWithinOnePieceOnly) {
  const auto leased = acquire_lease();
  const auto found = leased->find(stretch(1, 8, kPieceBytes - 8));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset_bytes, 8U);
  EXPECT_EQ(found->address(), reinterpret_cast<std::uintptr_t>(piece(1).data()) + 8);
  EXPECT_TRUE(leased->find(stretch(0, 0, kPieceBytes)));
  EXPECT_FALSE(leased->find(stretch(0, 1, kPieceBytes))) << "into the next one";
  EXPECT_FALSE(leased->find(stretch(1, 1, kPieceBytes))) << "behind the last";
  std::array<std::byte, 8> elsewhere{};
  EXPECT_FALSE(leased->find({elsewhere.data(), elsewhere.size()}));
}

TEST_F(RdmaWindowsTest, PiecesBeyondTheBudgetAreRefusedBeforeTheDeviceIsAsked) {
  RegistrationBudgets one{1};
  const std::array pieces{stretch(0, 0, kPieceBytes), stretch(1, 0, kPieceBytes)};
  const auto refused =
      LeasedMemory::create(device_, pieces, nullptr, {one.of("", 0), windows_.of("", 0)});
  EXPECT_CODE(refused, kLimitExceeded);
  EXPECT_TRUE(fake_.registered.empty());
}

TEST_F(RdmaWindowsTest, RegisteredBytesAreToldAndStopEndsItBetweenTwoPieces) {
  const std::array pieces{stretch(0, 0, kPieceBytes), stretch(1, 0, kPieceBytes)};
  std::vector<std::uint64_t> told;
  std::stop_source source;
  const auto create = [&](std::uint64_t stop_at) {
    told.clear();
    return LeasedMemory::create(device_, pieces, nullptr,
                                {registrations_.of("fake0", 0), windows_.of("fake0", 0)},
                                source.get_token(), [&](std::uint64_t done_bytes) {
                                  told.push_back(done_bytes);
                                  if (done_bytes == stop_at) source.request_stop();
                                });
  };
  EXPECT_TRUE(create(UINT64_MAX).ok());
  EXPECT_EQ(told, (std::vector<std::uint64_t>{0, kPieceBytes, 2 * kPieceBytes}));
  const auto stopped = create(kPieceBytes);
  EXPECT_CODE(stopped, kCancelled);
  EXPECT_EQ(told, (std::vector<std::uint64_t>{0, kPieceBytes}));
  EXPECT_EQ(fake_.registered.size(), 3U) << "two, and one before the stop";
}

}  // namespace
}  // namespace remora::transport::rdma
