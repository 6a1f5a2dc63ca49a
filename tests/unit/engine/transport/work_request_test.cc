#include "transport/work_request.h"

#include <gtest/gtest.h>

namespace remora::transport {
namespace {

TEST(NoticeRequest, CarriesEveryFieldOfTheNotice) {
  constexpr Notice kNotice{.grant_id = 0x1122334455667788,
                           .offset_bytes = 0x0123456789abcdef,
                           .length_bytes = 0xfedcba9876543210,
                           .tag = 0xcafef00d};
  constexpr WorkRequest kRequest = to_request(kNotice);
  static_assert(kRequest.opcode == Opcode::kNotify);
  EXPECT_EQ(kRequest.local, nullptr);
  EXPECT_EQ(kRequest.length_bytes, 0U);
  constexpr Notice kCarried = to_notice(kRequest);
  EXPECT_EQ(kCarried.grant_id, kNotice.grant_id);
  EXPECT_EQ(kCarried.offset_bytes, kNotice.offset_bytes);
  EXPECT_EQ(kCarried.length_bytes, kNotice.length_bytes);
  EXPECT_EQ(kCarried.tag, kNotice.tag);
}

}  // namespace
}  // namespace remora::transport
