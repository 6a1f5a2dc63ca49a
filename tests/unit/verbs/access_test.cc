#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Access;

TEST(Access, TextNamesEveryRight) {
  EXPECT_EQ(to_string(Access::kNone), "none");
  EXPECT_EQ(to_string(Access::kLocalWrite | Access::kRemoteRead), "local-write|remote-read");
}

TEST(Access, ContainsWantsAllOfThem) {
  const Access both = Access::kLocalWrite | Access::kRemoteRead;
  EXPECT_TRUE(contains(both, Access::kRemoteRead));
  EXPECT_FALSE(contains(both, Access::kRemoteRead | Access::kRemoteAtomic));
  EXPECT_TRUE(contains(both, Access::kNone));
}

}  // namespace
}  // namespace remora::test
