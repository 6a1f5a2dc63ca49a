#pragma once

/// A device that binds windows as it is told to, and a pool that is registered with it.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/rdma/budget_share.h"
#include "transport/rdma/device_budgets.h"
#include "transport/rdma/leased_memory.h"
#include "transport/rdma/window_lane.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {

/// Keys as different as a NIC's, and what becomes of binds.
struct WindowNic {
  static inline verbs::Provider before{};
  static inline std::uint32_t next_key = 1;
  static inline bool silent = false;  ///< nothing posted completes
  static inline std::atomic<int> polls{0};
  static inline ibv_wc_status ends_with = IBV_WC_SUCCESS;

  static inline void (*at_alloc)() = nullptr;
  static inline void (*at_poll)() = nullptr;
  static inline WindowLane* lane = nullptr;  ///< for those two

  static ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type) {
    if (at_alloc != nullptr) at_alloc();
    ibv_mw* const window = before.alloc_mw(domain, type);
    if (window != nullptr) window->rkey = next_key++ << 8U;
    return window;
  }
  static int post_send(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** bad) {
    const int failed = before.post_send(pair, chain, bad);
    auto& completions = test::fake().completions;
    for (ibv_wc& completion : completions) completion.status = ends_with;
    if (silent) completions.clear();
    return failed;
  }
  static int poll_cq(ibv_cq* queue, int count, ibv_wc* completions) {
    ++polls;
    if (at_poll != nullptr) at_poll();
    return silent ? 0 : before.poll_cq(queue, count, completions);
  }
};

class RdmaWindowsTest : public test::FakeTest {
 protected:
  static constexpr std::uint64_t kPieceBytes = 8192;

  void SetUp() override {
    WindowNic::before = fake_.table;
    WindowNic::next_key = 1;
    WindowNic::silent = false;
    WindowNic::at_alloc = nullptr;
    WindowNic::at_poll = nullptr;
    WindowNic::ends_with = IBV_WC_SUCCESS;
    fake_.table.alloc_mw = &WindowNic::alloc_mw;
    fake_.table.post_send = &WindowNic::post_send;
    fake_.table.poll_cq = &WindowNic::poll_cq;
    device_ = open();
  }
  void TearDown() override {
    device_ = {};
    FakeTest::TearDown();
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  [[nodiscard]] std::span<std::byte> piece(std::size_t index) noexcept {
    return std::span{memory_}.subspan(index * kPieceBytes, kPieceBytes);
  }
  [[nodiscard]] MemoryStretch stretch(std::size_t index, std::uint64_t offset,
                                      std::uint64_t length) noexcept {
    return {piece(index).data() + offset, length};
  }
  /// Two pieces.
  std::shared_ptr<const LeasedMemory> acquire_lease(std::shared_ptr<void> hold = nullptr) {
    const std::array pieces{stretch(1, 0, kPieceBytes), stretch(0, 0, kPieceBytes)};
    return LeasedMemory::create(device_, pieces, std::move(hold),
                                {registrations_.of("fake0", 0), windows_.of("fake0", 0)})
        .value();
  }
  /// A lane whose queue pair is connected.
  struct Connected {
    std::shared_ptr<WindowLane> lane;
    std::unique_ptr<verbs::QueuePair<verbs::Rc>> pair;
    ~Connected() {
      if (lane != nullptr) lane->end();
    }
  };
  Connected connect(const LeasedMemory& leased) {
    auto lane = WindowLane::create(device_).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{leased.domain(), lane->queue(), lane->queue()};
    auto prepared = builder.send_depth(WindowLane::kBinds).build().value();
    const auto self = prepared.endpoint();
    auto pair =
        std::make_unique<verbs::QueuePair<verbs::Rc>>(std::move(prepared).connect(self).value());
    lane->begin(*pair);
    return {std::move(lane), std::move(pair)};
  }
  BudgetShare share(std::uint64_t count) {
    return BudgetShare::take(windows_.of("fake0", 0), count).value();
  }
  [[nodiscard]] int broken() const {
    int count = 0;
    for (const auto& [attributes, mask] : fake_.modified)
      count += (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR ? 1 : 0;
    return count;
  }

  RegistrationBudgets registrations_{100};
  WindowBudgets windows_{100};
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kPieceBytes);
  verbs::Device device_;
};

}  // namespace remora::transport::rdma
