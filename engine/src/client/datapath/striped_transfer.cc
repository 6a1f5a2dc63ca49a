#include "client/datapath/striped_transfer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <poll.h>
#include <span>

#include <remora/assert.h>
#include <remora/engine/engine.h>

#include "base/spin_pause.h"
#include "client/datapath/end_tally.h"

namespace remora::detail {

using transport::Opcode;

namespace {

/// From this length on, a part is worth its own lane. For shorter parts a lane costs more than it
/// saves (tests/bench, "Lanes").
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20U;
/// Parts are multiples of this length, so that two lanes never write to the same page of an aligned
/// transfer.
constexpr std::uint64_t kPartAlignment = 4096;
/// A thread that completes a part notifies this one, so this limit matters only without an eventfd.
constexpr std::chrono::milliseconds kMaxNap{100};

/// The part of the operation that one lane carries out.
struct Part {
  OperationRecord operation;
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  LaneDriver* lane = nullptr;

  [[nodiscard]] bool ended() const noexcept { return sink.ready() != 0; }
};

/// The parts of one operation, and the caller that waits for them.
class StripedTransfer {
 public:
  StripedTransfer(const StripedPath& path, const OperationRecord& operation) noexcept;
  void run() noexcept;
  [[nodiscard]] Outcome outcome() const noexcept;
  /// The fault that broke a lane, if the lane had one of the parts.
  [[nodiscard]] LaneFault fault() const noexcept;

 private:
  [[nodiscard]] std::span<Part> parts() noexcept { return std::span{parts_}.first(count_); }
  [[nodiscard]] std::span<const Part> parts() const noexcept {
    return std::span{parts_}.first(count_);
  }
  bool poll() noexcept;
  void sleep() noexcept;

  const std::chrono::nanoseconds spin_;
  Deadline deadline_;
  std::array<Part, kMaxLanes> parts_;
  std::size_t count_ = 0;
  EventNotifier notifier_;  ///< notified by another thread that completes a part
};

/// The shares of the lanes: each lane's part of the rate of its device. A device of unknown rate
/// counts as the slowest.
class Shares {
 public:
  explicit Shares(const StripedPath& path) noexcept {
    shares_.fill(kWhole);
    if (path.by_rate) set_by_rate(path.lanes);
    for (std::size_t i = 0; i < path.lanes.size(); ++i) sum_ += shares_[i];
  }
  /// The share of `length_bytes`, in whole pages, and at least as long as is worth a lane.
  [[nodiscard]] std::uint64_t bytes_of(std::size_t lane,
                                       std::uint64_t length_bytes) const noexcept {
    const std::uint64_t part =
        length_bytes / sum_ * shares_[lane] + length_bytes % sum_ * shares_[lane] / sum_;
    return std::max(kPartBytes, (part + kPartAlignment - 1) / kPartAlignment * kPartAlignment);
  }

 private:
  static constexpr std::uint32_t kWhole = 840;  ///< divisible by 1 to 8: the lanes of one device
  void set_by_rate(std::span<const std::unique_ptr<LaneDriver>> lanes) noexcept {
    std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
    for (const auto& lane : lanes)
      if (const std::uint32_t rate = lane->megabits_per_s(); rate != 0)
        least = std::min(least, rate);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const auto on_its_device = std::count_if(lanes.begin(), lanes.end(), [&](const auto& each) {
        return each->memory_node() == lanes[i]->memory_node() &&
               each->server_device() == lanes[i]->server_device();
      });
      const std::uint32_t rate = lanes[i]->megabits_per_s();
      const std::uint32_t times = rate == 0 ? 1 : std::clamp(rate / least, 1U, kMaxTimes);
      shares_[i] = times * kWhole / static_cast<std::uint32_t>(on_its_device);
    }
  }
  static constexpr std::uint32_t kMaxTimes = 16;
  std::array<std::uint32_t, kMaxLanes> shares_{};
  std::uint64_t sum_ = 0;
};

StripedTransfer::StripedTransfer(const StripedPath& path, const OperationRecord& operation) noexcept
    : spin_{path.spin}, deadline_{operation.deadline} {
  notifier_.announce_awake();
  const auto& lanes = path.lanes;
  const bool flush = operation.request.opcode == Opcode::kFlush;
  const Shares shares{path};
  std::uint64_t begun_bytes = 0;
  for (const auto& lane : lanes) {
    if (!flush && begun_bytes == operation.length_bytes) return;
    Part& part = parts_[count_++];
    part.lane = lane.get();
    part.operation.request = operation.request;
    part.operation.memory = operation.memory;
    part.operation.submitted = operation.submitted;
    part.operation.deadline = operation.deadline;
    part.operation.offset_bytes = operation.offset_bytes + begun_bytes;
    part.operation.length_bytes = operation.length_bytes - begun_bytes;
    if (!flush && &lane != &lanes.back())
      part.operation.length_bytes = std::min(
          part.operation.length_bytes,
          shares.bytes_of(static_cast<std::size_t>(&lane - lanes.data()), operation.length_bytes));
    if (operation.request.local != nullptr) part.operation.request.local += begun_bytes;
    if (!flush) begun_bytes += part.operation.length_bytes;
    make_split(part.operation, path.extents);
    part.operation.part = true;  // the whole operation is counted, not its parts
    if (!operation.whole) part.operation.lease = operation.lease;
    part.operation.sink = &part.sink;
    part.sink.watch(notifier_);
  }
  REMORA_ASSERT(flush || begun_bytes == operation.length_bytes,
                "the parts of a transfer are the whole transfer");
}

/// Visits the lanes of the parts that have not ended. Returns whether all parts have ended.
bool StripedTransfer::poll() noexcept {
  const auto earliest = [this] { return deadline_; };
  bool all = true;
  for (Part& part : parts()) {
    if (!part.ended()) part.lane->wait(part.sink, 0, DeadlineSource{earliest});
    all = part.ended() && all;
  }
  return all;
}

/// Sleeps until a part may have ended.
void StripedTransfer::sleep() noexcept {
  const auto earliest = [this] { return deadline_; };
  // Without the eventfd, this thread notices parts that other threads complete after kMaxNap.
  if (!notifier_) (void)notifier_.open();
  notifier_.announce_sleep();
  std::array<pollfd, kMaxLanes + 1> events{};
  nfds_t count = 0;
  bool sleeps = true;
  if (notifier_) events[count++] = {.fd = notifier_.event(), .events = POLLIN, .revents = 0};
  for (Part& part : parts()) {
    if (part.ended()) continue;
    // Arms the lane, then checks.
    part.lane->progress_and_arm(part.sink, DeadlineSource{earliest});
    if (part.ended()) sleeps = false;
    events[count++] = {.fd = part.lane->event_fd(), .events = POLLIN, .revents = 0};
  }
  const Deadline until = std::min(deadline_, Clock::now() + kMaxNap);
  if (sleeps) ::poll(events.data(), count, milliseconds_until(until) + 1);
  notifier_.announce_awake();
  if (notifier_) notifier_.take_event();
}

void StripedTransfer::run() noexcept {
  for (Part& part : parts()) {
    OperationList single;
    single.append(part.operation);
    part.lane->submit(single);
  }
  Clock::time_point busy = Clock::now();
  while (!poll()) {
    if (const Clock::duration waited = Clock::now() - busy; waited < spin_) {
      spin_pause(waited);
      continue;
    }
    sleep();
    busy = Clock::now();
  }
  // On return no thread notifies the notifier any more.
  for (Part& part : parts()) part.lane->settle_events();
}

/// The whole succeeds if all parts do. The failure of a refused part takes precedence over the
/// failures that it caused in other parts. A write of which some bytes were written is
/// indeterminate.
Outcome StripedTransfer::outcome() const noexcept {
  const auto uncertain = [](const Outcome& each) {
    return each.code == Code::kTimedOut || each.code == Code::kCancelled ||
           each.code == Code::kConnectionLost || each.code == Code::kIndeterminate;
  };
  const Outcome* found = nullptr;
  bool any_effect = false;
  for (const Part& part : parts()) {
    const Outcome& each = part.operation.outcome;
    any_effect = any_effect || each.ok || each.code == Code::kIndeterminate;
    if (!each.ok && (found == nullptr || (uncertain(*found) && !uncertain(each)))) found = &each;
  }
  if (found == nullptr) return {};
  if (!transport::is_write(parts_.front().operation.request.opcode) || !uncertain(*found) ||
      !any_effect)
    return *found;
  Outcome indeterminate = *found;
  indeterminate.code = Code::kIndeterminate;
  return indeterminate;
}

LaneFault StripedTransfer::fault() const noexcept {
  for (const Part& part : parts())
    if (const LaneFault fault = part.lane->fault(); fault != LaneFault::kNone) return fault;
  return LaneFault::kNone;
}

}  // namespace

namespace {
/// A part that was not posted has waited for the next lane; a read that was posted is repeated.
bool goes_again(const StripedPath& path, const OperationRecord& operation) {
  return !operation.outcome.ok && operation.outcome.code == Code::kConnectionLost &&
         operation.request.opcode == Opcode::kRead && path.repeats && path.repeats() &&
         Clock::now() < operation.deadline;
}
}  // namespace

bool uses_all_lanes(const OperationRecord& operation) noexcept {
  if (operation.request.opcode == Opcode::kFlush) return true;
  if (is_atomic(operation.request.opcode) || operation.length_bytes < 2 * kPartBytes) return false;
  return operation.whole || (operation.pieces == nullptr && operation.notice.grant_id == 0);
}

void run_striped(const StripedPath& path, OperationRecord& operation) noexcept {
  LaneFault fault = LaneFault::kNone;
  do {
    StripedTransfer lanes{path, operation};
    const LaneFault before = lanes.fault();
    lanes.run();
    operation.outcome = lanes.outcome();
    // If a lane was broken before, the operation is not a victim.
    if (before == LaneFault::kNone) fault = lanes.fault();
  } while (goes_again(path, operation));
  EndTally tally{path.metrics};
  tally.add(operation);
  const Outcome& outcome = operation.outcome;
  // An operation that was past its deadline, or was refused, is not a victim of another one.
  if (fault != LaneFault::kNone && !outcome.ok && tally.now() < operation.deadline &&
      (outcome.code == Code::kConnectionLost || outcome.code == Code::kIndeterminate))
    path.metrics.victim(tally.recorder(), fault);
}

}  // namespace remora::detail
