#include "client/services/handler_gate.h"

#include <atomic>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

namespace remora::detail {
namespace {

TEST(HandlerGates, PassesAreOpenUntilItIsClosed) {
  HandlerGate gate;
  {
    const HandlerGate::Pass one{gate};
    const HandlerGate::Pass other{gate};
    EXPECT_TRUE(one);
    EXPECT_TRUE(other);
  }
  gate.close();
  const HandlerGate::Pass late{gate};
  EXPECT_FALSE(late);
}

TEST(HandlerGates, CloseWaitsForTheHandlerThatRuns) {
  HandlerGate gate;
  std::optional<HandlerGate::Pass> pass{std::in_place, gate};
  ASSERT_TRUE(*pass);
  std::atomic<bool> ended{false};
  std::atomic<bool> ended_before_close{false};
  std::thread closer{[&] {
    gate.close();
    ended_before_close = ended.load();
  }};
  ended = true;
  pass.reset();
  closer.join();
  EXPECT_TRUE(ended_before_close);
}

}  // namespace
}  // namespace remora::detail
