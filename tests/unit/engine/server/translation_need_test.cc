/// The estimate of engine/docs/sizing.md.

#include "server/translation_need.h"

#include <gtest/gtest.h>

namespace remora::detail {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

TEST(TranslationNeed, IsEightBytesForEachPage) {
  EXPECT_EQ(translation_bytes(64 * kGiB, 4 * kKiB), 128 * kMiB);
  EXPECT_EQ(translation_bytes(64 * kGiB, 2 * kMiB), 256 * kKiB);
  EXPECT_EQ(translation_bytes(1024 * kGiB, 4 * kKiB), 2 * kGiB);
  EXPECT_EQ(translation_bytes(1024 * kGiB, 2 * kMiB), 4 * kMiB);
  EXPECT_EQ(translation_bytes(1, 4 * kKiB), 8U) << "a part of a page counts as a whole one";
  EXPECT_EQ(translation_bytes(0, 4 * kKiB), 0U);
}

}  // namespace
}  // namespace remora::detail
