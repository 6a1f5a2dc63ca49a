#include <array>
#include <string_view>
#include <utility>

#include <remora/testing/fault_transport.h>

#include "base/closed.h"
#include "transport/fault/core.h"

namespace remora::testing {

namespace {

Status check_rates(const FaultRates& rates, Operation operation) {
  const auto wrong = [&](std::string_view what) {
    return Error{Code::kInvalidArgument, operation}.with_subject(what);
  };
  const std::array<std::pair<double, std::string_view>, 8> chances{
      {{rates.lose_lane, "lose_lane: expected 0 to 1"},
       {rates.lose_connection, "lose_connection: expected 0 to 1"},
       {rates.landed, "landed: expected 0 to 1"},
       {rates.delay, "delay: expected 0 to 1"},
       {rates.hold, "hold: expected 0 to 1"},
       {rates.reorder, "reorder: expected 0 to 1"},
       {rates.refuse_connect, "refuse_connect: expected 0 to 1"},
       {rates.drop_answer, "drop_answer: expected 0 to 1"}}};
  for (const auto& [chance, what] : chances)
    if (!(chance >= 0 && chance <= 1)) return wrong(what);  // refuses NaN, too
  if (rates.delay_least < rates.delay_least.zero()) return wrong("delay_least is negative");
  if (rates.max_delay < rates.delay_least) return wrong("max_delay is below delay_least");
  if (rates.max_delay > kMaxFaultDelay) return wrong("max_delay is above one minute");
  return {};
}

}  // namespace

using detail::FaultVerdict;

Result<FaultTransport> FaultTransport::create(const FaultOptions& options) {
  if (auto status = check_rates(options.rates, "FaultTransport::create"); !status)
    return status.error();
  return FaultTransport{std::make_shared<detail::FaultCore>(options)};
}

const std::shared_ptr<detail::FaultCore>& FaultTransport::hook() const noexcept {
  static const std::shared_ptr<detail::FaultCore> none;
  return core_ == nullptr ? none : core_.pointer();
}

Status FaultTransport::set_rates(const FaultRates& rates) const {
  if (auto status = check_rates(rates, "FaultTransport::set_rates"); !status) return status;
  if (core_ == nullptr) return remora::detail::closed("FaultTransport::set_rates", core_);
  core_->set_rates(rates);
  return {};
}

void FaultTransport::lose_next_lane(Landing landing, std::uint64_t requests_before) const noexcept {
  if (core_ != nullptr) core_->lose_next(FaultVerdict::Loss::kLane, landing, requests_before);
}
void FaultTransport::lose_next_connection(Landing landing,
                                          std::uint64_t requests_before) const noexcept {
  if (core_ != nullptr) core_->lose_next(FaultVerdict::Loss::kConnection, landing, requests_before);
}
void FaultTransport::lose_connections() const noexcept {
  if (core_ != nullptr) core_->lose_connections();
}
void FaultTransport::refuse_connects(std::uint64_t count) const noexcept {
  if (core_ != nullptr) core_->refuse_connects(count);
}
void FaultTransport::refuse_connects_for(std::chrono::nanoseconds time) const noexcept {
  if (core_ != nullptr) core_->refuse_connects_for(time);
}
void FaultTransport::delay_next(std::uint64_t requests,
                                std::chrono::nanoseconds delay) const noexcept {
  if (core_ != nullptr) core_->delay_next(requests, delay);
}
void FaultTransport::hold_completions() const noexcept {
  if (core_ != nullptr) core_->hold_completions();
}
void FaultTransport::release_completions() const noexcept {
  if (core_ != nullptr) core_->release_completions();
}
void FaultTransport::hold_answers() const noexcept {
  if (core_ != nullptr) core_->hold_answers();
}
void FaultTransport::release_answers() const noexcept {
  if (core_ != nullptr) core_->release_answers();
}
FaultCounts FaultTransport::counts() const noexcept {
  return core_ == nullptr ? FaultCounts{} : core_->counts();
}

}  // namespace remora::testing
