#pragma once

/// A QueuedLaneDriver that another lane may follow.

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "queued_lane_driver_fixture.h"

namespace remora::detail {

using transport::FakeLane;
using transport::Opcode;

/// A lane with a descriptor that can be added to an epoll set.
class FollowingLane final : public FakeLane {
 public:
  using FakeLane::FakeLane;
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  std::size_t poll(std::span<transport::LaneCompletion> found) noexcept override {
    if (before_poll) before_poll();
    return FakeLane::poll(found);
  }
  std::function<void()> before_poll;

 private:
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

class QueuedLaneRevivalTest : public QueuedLaneDriverTest {
 protected:
  void SetUp() override {
    bounce_ = SlotStore::create(4, 256).value();
    ASSERT_TRUE(bounce_->memory()->register_with(domain_, 0));
    auto lane = std::make_unique<FollowingLane>(4);
    lane_ = lane.get();
    driver_ = std::make_unique<QueuedLaneDriver>(
        std::move(lane),
        QueuedLaneDriver::Options{.spin = std::chrono::nanoseconds{0},
                                  .domain_index = 0,
                                  .needs_keys = true,
                                  .bounce = bounce_,
                                  .revivable = true,
                                  .why_refused = [this](const auto& each) { return why_(each); },
                                  .revoked = [this](const auto& each) { return revoked_(each); }},
        ClientMetrics::create(registry_, TransportKind::kRdma).value(), [this] { ++told_broken_; });
  }
  /// Gives the driver another lane. False: the driver did not take it.
  bool follow(std::unique_ptr<FollowingLane> lane = std::make_unique<FollowingLane>(4)) {
    FakeLane* const next = lane.get();
    if (!driver_->replace(std::move(lane))) return false;
    lane_ = next;
    driver_->go_on();
    return true;
  }
  OperationRecord& block(Opcode opcode, std::size_t index,
                         std::chrono::milliseconds deadline = std::chrono::seconds{60}) {
    // Not neighbours, so that each is a request of its own.
    return registered(
        make(opcode, index * 128, std::span{buffer_}.subspan(index * 256, 64), deadline));
  }
  /// `count` reads that are neighbours on both sides, so they are one request.
  std::vector<OperationRecord*> joined_reads(std::size_t count) {
    std::vector<OperationRecord*> reads;
    for (std::size_t i = 0; i < count; ++i) {
      reads.push_back(
          &registered(make(Opcode::kRead, i * 64, std::span{buffer_}.subspan(i * 64, 64))));
      if (i != 0) reads[i - 1]->next = reads[i];
    }
    submit(*reads.front());
    return reads;
  }

  std::function<Reason(const OperationRecord&)> why_ = [](const auto&) { return Reason::kNone; };
  std::function<Reason(const OperationRecord&)> revoked_ = why_;
};

}  // namespace remora::detail
