#pragma once

/// A lane whose completions the test decides.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/lane.h"

namespace remora::transport {

class FakeLane : public Lane {
 public:
  struct Seen {
    WorkRequest request;
    std::uint64_t sequence;
  };

  explicit FakeLane(std::uint32_t depth = 8, std::uint32_t transfer_bytes_max = 1024)
      : results(16) {
    limits_ = {.depth = depth, .transfer_bytes_max = transfer_bytes_max, .inline_bytes_max = 16};
  }

  void set_initiator_depth(std::uint32_t depth) { limits_.initiator_depth = depth; }
  [[nodiscard]] const Limits& limits() const noexcept override { return limits_; }
  [[nodiscard]] std::shared_ptr<const LaneRail> rail() const noexcept override { return on_rail; }
  void set_rail(const std::string& server_device, std::uint32_t megabits_per_s = 0,
                int memory_node = -1, const std::string& home_device = {}) {
    auto rail = std::make_shared<LaneRail>();
    rail->device = "near-" + server_device;
    rail->server_device = server_device;
    rail->home_device = home_device;
    rail->megabits_per_s = megabits_per_s;
    rail->memory_node = memory_node;
    on_rail = std::move(rail);
  }
  PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept override {
    ++doorbells;
    const std::size_t count = std::min(chain.size(), take_at_most);
    for (std::size_t i = 0; i < count; ++i) posted.push_back({*chain[i], first_sequence + i});
    return {.taken = count, .error = count == chain.size() ? 0 : EIO};
  }
  std::size_t poll(std::span<LaneCompletion> found) noexcept override {
    ++polls;
    std::size_t count = 0;
    while (count < found.size() && !ready.empty()) {
      found[count++] = ready.front();
      ready.pop_front();
    }
    return count;
  }
  [[nodiscard]] std::span<const std::uint64_t> atomic_results() const noexcept override {
    return results;
  }
  Status arm() noexcept override { return {}; }
  void drain_events() noexcept override {}
  [[nodiscard]] int event_fd() const noexcept override { return 0; }  // never readable in time
  void move_to_error() noexcept override {
    ++broken;
    if (!flush_when_broken) return;
    const std::uint64_t first = first_unfinished;
    for (const Seen& seen : posted)
      if (seen.sequence >= first)
        ready.push_back(
            {.sequence = seen.sequence, .status = CompletionStatus::kFlushed, .vendor_error = 0});
  }
  void close() noexcept override { ++closed; }
  void close_later() noexcept override {
    ++let_gone;
    close();
  }
  [[nodiscard]] std::uint32_t completion_capacity() const noexcept override {
    return limits_.depth;
  }

  void set_signaled_within(std::uint32_t count) { signaled_within_ = count; }

  /// Everything up to and with `sequence` completes, told by one completion.
  void complete(std::uint64_t sequence, CompletionStatus status = CompletionStatus::kSuccess) {
    ready.push_back({.sequence = sequence, .status = status, .vendor_error = 0});
    first_unfinished = sequence + 1;
  }

  std::shared_ptr<const LaneRail> on_rail;  ///< null: the session stays on one device
  std::vector<Seen> posted;
  std::deque<LaneCompletion> ready;
  std::vector<std::uint64_t> results;
  std::uint64_t first_unfinished = 0;
  std::size_t take_at_most = SIZE_MAX;
  bool flush_when_broken = true;
  int doorbells = 0;
  int polls = 0;
  int broken = 0;
  int closed = 0;
  int let_gone = 0;

 private:
  Limits limits_;
};

}  // namespace remora::transport
