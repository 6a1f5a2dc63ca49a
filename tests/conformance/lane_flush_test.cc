/// The completion queue of a lane has room for all requests that the lane can have posted: no
/// completion is lost when all requests flush, signaled or not.

#include <array>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <thread>
#include <vector>

#include <remora/engine/server.h>
#include <remora/verbs/verbs.h>

#include "raw_session.h"
#include "support/fault_line.h"
#include "support/held_before.h"
#include "support/pattern.h"
#include "support/server.h"
#include "support/transport.h"

namespace remora::test {
namespace {

using namespace std::chrono_literals;
using transport::LaneCompletion;
using transport::WorkRequest;

class LaneFlushTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    held_before_.emplace("lane_flush", [this] {
      (void)verbs::connection_manager_devices();  // the devices stay open from now on
      start();
      (void)RawSession{address_, GetParam()}.open("target", Rights::kAll);
      server_->stop();
      server_.reset();
    });
    start();
  }
  void TearDown() override {
    if (held_before_) held_before_->expect_again(server_);
  }
  void start() {
    server_ = Server::start(server_config(GetParam(), {.piece_bytes = 1U << 20U})).value();
    address_ = {listen_address(GetParam()), server_->port()};
    server_->create_region({.name = "target", .size_bytes = 64U << 10U}).value();
  }

  std::optional<HeldBefore> held_before_;
  std::optional<Server> server_;
  ServerAddress address_;
};

/// A full send queue with one signaled request. The lane moves to the error state at a random
/// moment after post(), or before it: a device that talks to itself may have carried out all
/// requests before post() returns.
TEST_P(LaneFlushTest, EveryRequestOfAFullLaneIsToldOf) {
  Random random{4711};
  FaultLine line{.rounds = rounds_of(20, 200)};
  for (std::uint64_t round = 0; round < line.rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    RawSession session{address_, GetParam()};
    const auto grant = session.open("target", Rights::kAll);
    transport::Lane& lane = session.lane();
    const std::size_t depth = lane.limits().depth;
    ASSERT_GE(lane.completion_capacity(), depth) << "the completion queue could overrun";
    const WorkRequest request{.local = session.local().data(),
                              .length_bytes = 64,
                              .local_key = session.local_key(),
                              .remote_address = grant.extents.at(0).remote_address,
                              .remote_key = grant.extents.at(0).remote_key,
                              .opcode = transport::Opcode::kWrite};
    const std::vector<const WorkRequest*> chain(depth, &request);
    const bool before = round % 2 == 0;
    if (before) lane.move_to_error();
    ASSERT_EQ(lane.post(chain, 0).taken, depth);
    std::this_thread::sleep_for(std::chrono::microseconds{random.below(3000)});
    if (!before) lane.move_to_error();
    std::uint64_t next = 0;  // the first request that no completion has covered
    std::uint64_t flushed = 0;
    const auto began = std::chrono::steady_clock::now();
    for (const auto until = std::chrono::steady_clock::now() + 10s;
         next < depth && std::chrono::steady_clock::now() < until;) {
      std::array<LaneCompletion, 16> found;
      const std::size_t count = lane.poll(found);
      for (std::size_t i = 0; i < count; ++i) {
        const auto& [sequence, status, vendor] = found[i];
        ASSERT_GE(sequence, next) << "completed twice";
        if (status != CompletionStatus::kSuccess) {
          ++flushed;
          ASSERT_EQ(sequence, next) << "each failed request has its own completion";
          line.ended(to_string(status), std::chrono::steady_clock::now() - began);
        }
        next = sequence + 1;
      }
    }
    EXPECT_EQ(next, depth) << "completions were lost";
    line.operations += next - flushed;
    line.ok += next - flushed;
    if (before) {
      EXPECT_EQ(flushed, depth);
    }
    std::array<LaneCompletion, 1> more;
    EXPECT_EQ(lane.poll(more), 0U);
  }
  line.print(to_string(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Flush, LaneFlushTest, testing::Values(TransportKind::kRdma),
                         [](const auto& made) { return std::string{to_string(made.param)}; });

}  // namespace
}  // namespace remora::test
