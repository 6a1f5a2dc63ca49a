#pragma once

/// A QueuedLaneDriver over a lane whose completions the test decides.

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "client/datapath/operation_list.h"
#include "client/datapath/queued_lane_driver.h"
#include "unit/engine/fake_lane.h"

namespace remora::detail {

/// A registration that hands out a fixed key.
class FakeDomain final : public transport::MemoryDomain {
 public:
  static constexpr std::uint32_t kKey = 77;
  Result<std::unique_ptr<transport::Registration>> register_bytes(std::span<std::byte>) override {
    struct Known final : transport::Registration {
      explicit Known(const FakeDomain& domain) : of{domain} {}
      [[nodiscard]] std::uint32_t local_key() const noexcept override { return of.key; }
      [[nodiscard]] bool lost() const noexcept override { return of.lost; }
      const FakeDomain& of;
    };
    return std::unique_ptr<transport::Registration>{std::make_unique<Known>(*this)};
  }
  std::uint32_t key = kKey;
  bool lost = false;  ///< the device has not taken its memory again
};

class QueuedLaneDriverTest : public ::testing::Test {
 protected:
  void start(std::unique_ptr<transport::FakeLane> lane, std::size_t bounce_slots = 4) {
    lane_ = lane.get();
    bounce_ = SlotStore::create(bounce_slots, 256).value();
    ASSERT_TRUE(bounce_->memory()->register_with(domain_, 0));
    auto metrics = ClientMetrics::create(registry_, TransportKind::kRdma).value();
    driver_ = std::make_unique<QueuedLaneDriver>(
        std::move(lane),
        QueuedLaneDriver::Options{.spin = std::chrono::nanoseconds{0},
                                  .domain_index = 0,
                                  .needs_keys = true,
                                  .bounce = bounce_},
        metrics, [this] { ++told_broken_; });
  }
  void SetUp() override { start(std::make_unique<transport::FakeLane>()); }

  OperationRecord& make(transport::Opcode opcode, std::uint64_t offset, std::span<std::byte> local,
                        std::chrono::milliseconds deadline = std::chrono::seconds{60}) {
    // Not zeroed, like a record on a caller's stack.
    auto& operation = *operations_.emplace_back(std::make_unique_for_overwrite<OperationRecord>());
    operation.next = nullptr;
    operation.memory = nullptr;
    operation.request.opcode = opcode;
    operation.request.local = local.data();
    operation.offset_bytes = offset;
    operation.length_bytes = local.empty() ? 8 : local.size();
    const bool keyless =
        is_atomic(opcode) || (opcode == transport::Opcode::kWrite && local.size() <= 16);
    if (!keyless || !make_whole(operation, extents_, driver_->request_bytes_max()))
      make_split(operation, extents_);
    operation.submitted = Clock::now();
    operation.deadline = Clock::now() + deadline;
    operation.sink = &sink_;
    return operation;
  }
  OperationRecord& registered(OperationRecord& operation) {
    operation.memory = bounce_->memory().get();
    operation.request.local_key = FakeDomain::kKey;
    if (!make_whole(operation, extents_, driver_->request_bytes_max()))
      make_split(operation, extents_);
    return operation;
  }
  /// The operation and those chained to it, as a queue submits them.
  void submit(OperationRecord& first) {
    OperationList operations;
    const OperationRecord* before = nullptr;
    for (OperationRecord* at = &first; at != nullptr;) {
      OperationRecord& operation = *std::exchange(at, at->next);
      operation.submitted = first.submitted;
      operation.follows = before != nullptr && may_follow(*before, operation);
      operations.append(operation);
      before = &operation;
    }
    driver_->submit(operations);
  }
  /// The operations that have completed, in their order.
  std::vector<OperationRecord*> taken() {
    std::vector<OperationRecord*> all;
    while (sink_.ready() != 0) {
      auto [at, count] = sink_.take_run();
      for (; count != 0; --count) all.push_back(std::exchange(at, at->next));
    }
    return all;
  }
  void wait_all(std::size_t count, Deadline deadline = Deadline::max()) {
    const auto earliest = [deadline] { return deadline; };
    driver_->wait(sink_, count, DeadlineSource{earliest});
  }
  double counted(const char* status) {
    return registry_->sum("remora_client_operations_total", {{"status", status}}).value();
  }

  double victims(const char* cause) {
    return registry_
        ->value("remora_client_lane_victims_total", {{"transport", "rdma"}, {"cause", cause}})
        .value();
  }

  FakeDomain domain_;
  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::shared_ptr<SlotStore> bounce_;
  transport::FakeLane* lane_ = nullptr;
  int told_broken_ = 0;
  std::array<CompletionSink::Run, 64> sink_ring_{};
  CompletionSink sink_{sink_ring_};
  std::vector<std::unique_ptr<OperationRecord>> operations_;
  std::vector<transport::WireExtent> extents_{
      {.start_bytes = 0, .length_bytes = 4096, .remote_address = 0x10000, .remote_key = 1},
      {.start_bytes = 4096, .length_bytes = 4096, .remote_address = 0x50000, .remote_key = 2}};
  std::unique_ptr<QueuedLaneDriver> driver_;
  std::array<std::byte, 4096> buffer_{};
};

}  // namespace remora::detail
