#include "client/session/backoff.h"

#include <gtest/gtest.h>
#include <set>

namespace remora::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Backoff, StepsDoubleFromTheFirstToTheMaximum) {
  Backoff backoff{1};
  milliseconds step = Backoff::kFirst;
  for (int i = 0; i < 20; ++i) {
    const nanoseconds pause = backoff.next();
    EXPECT_GE(pause, step / 2) << i;
    EXPECT_LE(pause, step) << i;
    step = std::min(2 * step, Backoff::kMax);
  }
  EXPECT_EQ(step, Backoff::kMax);
  backoff.begin_anew();
  EXPECT_LE(backoff.next(), Backoff::kFirst);
}

TEST(Backoff, ClientsThatWereLostTogetherComeBackApart) {
  constexpr std::size_t kClients = 100;
  std::set<nanoseconds> first;
  std::set<milliseconds> tenth_by_decisecond;
  for (std::size_t i = 0; i < kClients; ++i) {
    Backoff backoff;
    first.insert(backoff.next());
    for (int step = 0; step < 8; ++step) (void)backoff.next();
    tenth_by_decisecond.insert(std::chrono::floor<milliseconds>(backoff.next()) / 100 * 100);
  }
  // Of what 100 clients draw out of ten million nanoseconds.
  EXPECT_GT(first.size(), kClients * 9 / 10);
  EXPECT_GE(tenth_by_decisecond.size(), 8U) << "spread over a second";
}

}  // namespace
}  // namespace remora::detail
