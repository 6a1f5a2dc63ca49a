// The MR cache where no thread is to be had: parts are registered by the caller, and without its
// threads the cache is one that is told of changes.

#include <cstdint>
#include <string>

#include "fake_nic.h"
#include "support/refuse_threads.h"

namespace remora::test {
namespace {

constexpr std::size_t kParts = 8;

class MrCacheThreadsTest : public MrCacheTest {
 protected:
  ~MrCacheThreadsTest() override { refuse_threads(SIZE_MAX, SIZE_MAX); }
};

TEST_F(MrCacheThreadsTest, PartsAreRegisteredWhateverThreadIsMissing) {
  create({.piece_bytes = kPage, .invalidation = verbs::Invalidation::kExplicit});
  for (const bool all : {false, true})
    for (std::size_t n = 0; n < kParts; ++n) {
      const Mapping memory{kParts};
      refuse_threads(n, all ? SIZE_MAX : n + 1);
      const auto lease = cache_->acquire(memory.bytes(), verbs::Access::kLocalWrite);
      refuse_threads(SIZE_MAX, SIZE_MAX);
      ASSERT_TRUE(lease) << lease.error();
      EXPECT_EQ(lease->piece_count(), kParts);
    }
}

TEST_F(MrCacheThreadsTest, WithoutItsThreadsItIsNotAutomaticAndSaysWhy) {
  bool automatic = false;
  for (std::size_t n = 0; !automatic; ++n) {
    ASSERT_LT(n, 8U);
    refuse_threads(n, n + 1);
    create();
    const bool refused = threads_refused() != 0;
    refuse_threads(SIZE_MAX, SIZE_MAX);
    automatic = cache_->automatic();
    EXPECT_EQ(automatic, !refused) << n;
    if (!automatic) {
      EXPECT_NE(cache_->why_not_automatic().find("thread"), std::string::npos)
          << cache_->why_not_automatic();
    }
    cache_.reset();
  }
}

}  // namespace
}  // namespace remora::test
