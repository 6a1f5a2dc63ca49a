/// The pool, registered for windows.

#include "transport/rdma/leased_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>

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

}  // namespace
}  // namespace remora::transport::rdma
