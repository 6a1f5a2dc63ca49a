#include "timed.h"

namespace remora::test {
namespace {

double in_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>{time}.count();
}

}  // namespace

::testing::AssertionResult Timed::took_at_most(std::chrono::nanoseconds limit,
                                               Clock::time_point from) const {
  const auto now = Clock::now();
  const std::chrono::nanoseconds took = now - from;
  if (took <= limit) return ::testing::AssertionSuccess();
  const std::chrono::nanoseconds still = watch_.within(from, now);
  if (took - still <= limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "took " << in_ms(took) << " ms, of which this process stood still for " << in_ms(still)
         << " ms; the limit is " << in_ms(limit) << " ms";
}

}  // namespace remora::test
