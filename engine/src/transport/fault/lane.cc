#include "transport/fault/lane.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>
#include <sys/timerfd.h>
#include <utility>

#include <remora/assert.h>

namespace remora::transport {

using detail::FaultCore;
using detail::FaultSampler;
using detail::FaultVerdict;
using Counts = testing::FaultCounts;

Result<std::unique_ptr<Lane>> FaultLane::create(std::shared_ptr<FaultCore> core,
                                                std::shared_ptr<detail::FaultLink> link,
                                                std::unique_ptr<Lane> real) {
  const auto bell = std::make_shared<detail::FaultBell>();
  if (!*bell) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  UniqueFd timer{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
  if (!timer) return Error{Code::kSystem, "timerfd_create"}.with_errno(errno);
  auto events = FdSet::create();
  if (!events) return events.error();
  for (const int fd : {real->event_fd(), bell->event(), timer.get()})
    if (auto status = events->add(fd); !status) return status.error();
  return std::unique_ptr<Lane>{std::make_unique<FaultLane>(std::move(core), std::move(link),
                                                           std::move(real), bell, std::move(timer),
                                                           std::move(*events))};
}

FaultLane::FaultLane(std::shared_ptr<FaultCore> core, std::shared_ptr<detail::FaultLink> link,
                     std::unique_ptr<Lane> real, std::shared_ptr<detail::FaultBell> bell,
                     UniqueFd timer, FdSet events)
    : core_{std::move(core)},
      link_{std::move(link)},
      real_{std::move(real)},
      bell_{std::move(bell)},
      timer_{std::move(timer)},
      events_{std::move(events)},
      sampler_{core_->seed(), FaultSampler::Place::kLane, core_->next_lane()},
      order_sampler_{sampler_.next(), FaultSampler::Place::kOrder, 0},
      requests_(std::bit_ceil(std::max(1U, real_->limits().depth))),
      mask_{requests_.size() - 1},
      sequence_at_(requests_.size()),
      results_(real_->atomic_results().size()),
      verdicts_(requests_.size()),
      order_(requests_.size()),
      chain_(requests_.size()) {
  core_->add_bell(bell_);
}

PostOutcome FaultLane::post(Chain chain, std::uint64_t first_sequence) noexcept {
  REMORA_ASSERT(first_sequence == next_sequence_, "requests are posted in their order");
  REMORA_ASSERT(!chain.empty() && next_sequence_ - reported_ + chain.size() <= requests_.size(),
                "a lane has a place for each request that is posted");
  signaled_within_ = 0;
  if (lost()) {
    core_->count(&Counts::requests, chain.size());
    swallow(first_sequence, chain.size());
    return {.taken = chain.size()};
  }
  const std::size_t judged = core_->judge(sampler_, std::span{verdicts_}.first(chain.size()));
  const FaultVerdict& last = verdicts_[judged - 1];
  const bool loses = last.loss != FaultVerdict::Loss::kNone;
  const std::size_t sent = loses && !last.landed ? judged - 1 : judged;
  const bool reordered = put_in_order(chain, sent, judged);
  PostOutcome outcome{.taken = 0};
  if (sent != 0) outcome = send(first_sequence, sent, reordered);
  if (!loses || outcome.error != 0) return outcome;
  swallow(first_sequence + sent, chain.size() - sent);
  lost_ = true;
  cuts_ = last.loss == FaultVerdict::Loss::kConnection;
  if (!cuts_) core_->count(&Counts::lanes_lost);
  bell_->ring();  // otherwise the thread that sleeps on the lane may not wake
  return {.taken = chain.size()};
}

/// Takes requests that are never sent, as a queue pair does in its error state.
void FaultLane::swallow(std::uint64_t first_sequence, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    at(first_sequence + i) = {.known = true, .status = CompletionStatus::kFlushed};
  next_sequence_ = first_sequence + count;
}

/// Puts the first `sent` requests of the chain in the order in which they are sent. True: the order
/// has changed.
bool FaultLane::put_in_order(Chain chain, std::size_t sent, std::size_t judged) noexcept {
  std::iota(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(sent), 0U);
  const auto stays = [](const WorkRequest* request) {  // it stays behind its write
    return request->opcode == Opcode::kNotify || request->opcode == Opcode::kFlush;
  };
  const bool reorders =
      sent > 1 &&
      std::any_of(verdicts_.begin(), verdicts_.begin() + static_cast<std::ptrdiff_t>(judged),
                  [](const FaultVerdict& each) { return each.reorder; }) &&
      std::none_of(chain.begin(), chain.end(), stays);
  if (reorders) {
    for (std::size_t left = sent; left > 1; --left)
      std::swap(order_[left - 1], order_[order_sampler_.next() % left]);
    core_->count(&Counts::chains_reordered);
  }
  for (std::size_t i = 0; i < sent; ++i) chain_[i] = chain[order_[i]];
  return reorders;
}

PostOutcome FaultLane::send(std::uint64_t first_sequence, std::size_t sent,
                            bool reordered) noexcept {
  const std::uint64_t releases = core_->releases();
  std::uint64_t delayed = 0;
  for (std::size_t i = 0; i < sent; ++i) {
    sequence_at_[(first_sequence + i) & mask_] = first_sequence + order_[i];
    const FaultVerdict& verdict = verdicts_[i];
    at(first_sequence + i) = {
        .sent = true, .hold = verdict.hold, .releases = releases, .delay = verdict.delay};
    delayed += verdict.delay > verdict.delay.zero() ? 1U : 0U;
  }
  if (delayed != 0) core_->count(&Counts::completions_delayed, delayed);
  PostOutcome outcome = real_->post(Chain{chain_.data(), sent}, first_sequence);
  signaled_within_ = sent > 1 ? real_->signaled_within() : 0;
  real_end_ = first_sequence + outcome.taken;
  next_sequence_ = first_sequence + (reordered ? sent : outcome.taken);
  if (outcome.error == 0 || !reordered) return outcome;
  // The caller cannot learn from a count which requests the lane did not take: they fail one by
  // one.
  for (std::size_t i = outcome.taken; i < sent; ++i)
    at(first_sequence + order_[i]) = {.known = true, .status = CompletionStatus::kFlushed};
  lost_ = true;
  bell_->ring();
  return {.taken = sent};
}

/// Takes all completions of the real lane.
void FaultLane::absorb() noexcept {
  std::array<LaneCompletion, 64> found;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  while (real_done_ != real_end_) {
    const std::size_t count = real_->poll(found);
    if (count == 0) return;
    for (const LaneCompletion& each : std::span{found}.first(count)) {
      while (real_done_ < each.sequence) settle(real_done_++, CompletionStatus::kSuccess, 0);
      if (real_done_ == each.sequence) settle(real_done_++, each.status, each.vendor_error);
    }
  }
}

/// `place`: the sequence on the real lane.
void FaultLane::settle(std::uint64_t place, CompletionStatus status,
                       std::uint32_t vendor_error) noexcept {
  const std::uint64_t sequence = sequence_at_[place & mask_];
  Request& request = at(sequence);
  request.known = true;
  request.status = status;
  request.vendor_error = vendor_error;
  if (request.delay > request.delay.zero()) request.due = Clock::now() + request.delay;
  const std::span<const std::uint64_t> results = real_->atomic_results();
  results_[sequence & (results_.size() - 1)] = results[place & (results.size() - 1)];
}

bool FaultLane::comes_through(Request& request, Clock::time_point now) noexcept {
  const bool held =
      core_->holds_completions() || (request.hold && request.releases == core_->releases());
  if (held && !std::exchange(request.held_counted, true)) core_->count(&Counts::completions_held);
  return !held && request.due <= now;
}

std::size_t FaultLane::poll(std::span<LaneCompletion> completions) noexcept {
  absorb();
  if (lost()) return report_lost(completions);
  const bool gone = in_error_.load(std::memory_order_acquire);
  const Clock::time_point now = Clock::now();
  std::size_t count = 0;
  for (; reported_ != next_sequence_ && count < completions.size(); ++reported_) {
    Request& request = at(reported_);
    if (!request.known) break;
    CompletionStatus status = request.status;
    if (status == CompletionStatus::kSuccess && !comes_through(request, now)) {
      if (!gone) {
        set_timer(request.due);
        break;
      }
      count_lost(request);
      status = CompletionStatus::kFlushed;
    }
    // One completion covers the successful requests before it.
    if (count != 0 && status == CompletionStatus::kSuccess &&
        completions[count - 1].status == CompletionStatus::kSuccess)
      completions[count - 1].sequence = reported_;
    else
      completions[count++] = {
          .sequence = reported_, .status = status, .vendor_error = request.vendor_error};
  }
  return count;
}

/// Reports the requests of a lane that a fault has ended. Reports none until the real lane has
/// completed all requests that were sent.
std::size_t FaultLane::report_lost(std::span<LaneCompletion> completions) noexcept {
  if (real_done_ != real_end_) return 0;
  // The session learns of the lost connection over control, and moves the lane to its error state.
  // Not earlier: that would end requests that the real lane must complete.
  if (std::exchange(cuts_, false)) core_->cut(*link_);
  if (link_->cut.load() && !in_error_.load(std::memory_order_acquire)) return 0;
  std::size_t count = 0;
  for (; reported_ != next_sequence_ && count < completions.size(); ++reported_) {
    count_lost(at(reported_));
    const CompletionStatus status = std::exchange(loss_reported_, true)
                                        ? CompletionStatus::kFlushed
                                        : CompletionStatus::kRetryExceeded;
    completions[count++] = {.sequence = reported_, .status = status, .vendor_error = 0};
  }
  return count;
}

void FaultLane::count_lost(const Request& request) noexcept {
  if (!request.sent)
    core_->count(&Counts::requests_unsent);
  else if (request.known && request.status == CompletionStatus::kSuccess)
    core_->count(&Counts::requests_landed);
}

void FaultLane::set_timer(Deadline due) noexcept {
  if (due == timer_due_ || due == Deadline::min()) return;
  timer_due_ = due;
  const auto since = due.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const itimerspec when{.it_interval = {},
                        .it_value = {.tv_sec = seconds.count(),
                                     .tv_nsec = std::chrono::nanoseconds{since - seconds}.count()}};
  (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void FaultLane::drain_events() noexcept {
  bell_->clear();
  std::uint64_t expirations = 0;
  (void)!::read(timer_.get(), &expirations, sizeof expirations);
  real_->drain_events();
}

void FaultLane::move_to_error() noexcept {
  in_error_.store(true, std::memory_order_release);
  real_->move_to_error();
  bell_->ring();
}

void FaultLane::close() noexcept {
  if (leave()) real_->close();
}

void FaultLane::close_later() noexcept {
  if (!leave()) return;
  if (real_done_ == real_end_)
    real_->close_later();
  else
    real_->close();
}

/// False: the lane was closed before.
bool FaultLane::leave() noexcept {
  if (std::exchange(closed_, true)) return false;
  for (; reported_ != next_sequence_; ++reported_) count_lost(at(reported_));
  // No thread reads from a closed lane, and it must not wake a poller that sleeps.
  events_.remove(bell_->event());
  events_.remove(timer_.get());
  return true;
}

}  // namespace remora::transport
