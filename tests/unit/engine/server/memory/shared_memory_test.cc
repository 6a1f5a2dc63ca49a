#include "server/memory/shared_memory.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <stop_token>
#include <sys/mman.h>
#include <vector>

namespace remora::detail {
namespace {

constexpr std::uint64_t kStep = PopulateSteps::kStepBytes;
constexpr std::uint64_t kSize = 3 * kStep + 4096;  // its last step is a page

SharedMemory empty_memory() {
  return SharedMemory::create("remora-test", kSize, config::HugePages::kNever, false).value();
}

/// Whether each page is there.
bool all_there(const SharedMemory& memory) {
  std::vector<unsigned char> there(memory.bytes().size() / 4096);
  if (::mincore(memory.bytes().data(), memory.bytes().size(), there.data()) != 0) return false;
  return std::all_of(there.begin(), there.end(),
                     [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(SharedMemoryPopulate, SeveralThreadsLeaveNoPageOut) {
  for (const std::size_t threads : {1U, 2U, 16U}) {
    const SharedMemory memory = empty_memory();
    EXPECT_FALSE(all_there(memory));
    std::vector<std::uint64_t> told;
    const Status made =
        memory.populate(0, kSize,
                        {.on_step = [&](std::uint64_t done) { told.push_back(done); },
                         .threads_max = threads,
                         .thread_bytes = kStep});
    ASSERT_TRUE(made.ok()) << made.error();
    EXPECT_TRUE(all_there(memory)) << threads;
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(told.back(), kSize);
    if (threads == 1) {
      EXPECT_EQ(told, (std::vector<std::uint64_t>{0, kStep, 2 * kStep, 3 * kStep, kSize}));
    }
  }
}

TEST(SharedMemoryPopulate, PartIsPopulatedWithinItsBounds) {
  const SharedMemory memory = empty_memory();
  ASSERT_TRUE(memory.populate(kStep, kStep, {.threads_max = 4, .thread_bytes = 4096}).ok());
  std::vector<unsigned char> there(kSize / 4096);
  ASSERT_EQ(::mincore(memory.bytes().data(), kSize, there.data()), 0);
  const std::size_t pages = kStep / 4096;
  for (std::size_t i = 0; i < there.size(); ++i)
    EXPECT_EQ((there[i] & 1U) != 0, i >= pages && i < 2 * pages) << i;
}

TEST(SharedMemoryPopulate, StopSaysHowMuchWasDone) {
  const SharedMemory memory = empty_memory();
  std::stop_source source;
  const Status made =
      memory.populate(0, kSize, {.stop = source.get_token(), .on_step = [&](std::uint64_t done) {
                                   if (done == kStep) source.request_stop();
                                 }});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), Code::kCancelled);
  EXPECT_EQ(made.error().asked(), kSize);
  EXPECT_EQ(made.error().allowed(), kStep);
}

}  // namespace
}  // namespace remora::detail
