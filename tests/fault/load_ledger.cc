#include "load_ledger.h"

#include <algorithm>
#include <utility>

#include "support/eventually.h"
#include "support/stall_watch.h"

namespace remora::fault {
namespace {

constexpr std::size_t kViolationsShown = 16;
/// Most that a handler may be behind what has happened: it is told next.
constexpr std::chrono::seconds kToldWithin{10};

void raise(std::atomic<std::int64_t>& highest, std::int64_t value) noexcept {
  std::int64_t seen = highest;
  while (value > seen && !highest.compare_exchange_weak(seen, value)) {
  }
}

/// What a fault may make of an operation. Reads have no effect, so they are never in doubt.
bool allowed(LoadKind kind, Code code) noexcept {
  switch (code) {
    case Code::kTimedOut:
    case Code::kConnectionLost:
    case Code::kStaleRegion:
    case Code::kAccessRefused: return true;
    case Code::kIndeterminate: return kind != LoadKind::kRead;
    default: return false;
  }
}

constexpr std::array<const char*, kLoadKinds.size()> kKindNames{
    "read", "write", "compare_swap", "fetch_add", "write_notify", "write_zeroes"};
static_assert(kLoadKinds.size() <= LoadPage::kKinds);

}  // namespace

const char* to_string(LoadKind kind) noexcept { return kKindNames[static_cast<std::size_t>(kind)]; }

LoadLedger::LoadLedger(const LoadOptions& options)
    : options_{options},
      page_{LoadPage::create(options.page, options.first_block + blocks_needed(options),
                             options.records)},
      last_ok_ns_{0} {
  page_.zeroes_each() = options.varied ? kZeroesEach : 0;
}

void LoadLedger::ended(LoadKind kind, const Status& status, Clock::time_point submitted) {
  const auto took = std::chrono::nanoseconds{Clock::now() - submitted};
  const std::chrono::nanoseconds over = took - options_.deadline;
  raise(longest_overrun_ns_, over.count());
  const char* const name = to_string(kind);
  ++page_.kind(static_cast<std::size_t>(kind)).ended;
  if (over > kGrace + options_.paused) {
    const auto still = stood_still(submitted);
    if (over - still > kGrace + options_.paused)
      violation(std::string{"I3: a "} + name + " ended " +
                std::to_string(over.count() / 1'000'000) +
                " ms after its deadline; meanwhile this process stood still for " +
                std::to_string(still.count() / 1'000'000) + " ms");
    else
      ++excused_;
  }
  if (++ended_ == options_.operations) stop();
  if (status) {
    ++ok_;
    const std::int64_t now = now_ns();
    // What came before the first is the time to connect.
    if (const std::int64_t before = last_ok_ns_.exchange(now); before != 0)
      raise(longest_silence_ns_, now - before);
    return;
  }
  raise(longest_verdict_ns_, took.count());
  const Code code = status.error().code();
  if (code == Code::kIndeterminate) uncertain_ = true;
  if (!allowed(kind, code))
    violation(std::string{"a "} + name + " ended as " + status.error().message());
  const std::lock_guard lock{mutex_};
  if (++failed_[code] == 1)
    first_failed_[code] = std::string{name} + " after " + std::to_string(took.count() / 1'000'000) +
                          " ms: " + status.error().message();
}

std::chrono::nanoseconds LoadLedger::stood_still(Clock::time_point submitted) const {
  if (options_.stalls == nullptr) return {};
  return options_.stalls->within(submitted, Clock::now());
}

void LoadLedger::stop() noexcept {
  const std::int64_t last = last_ok_ns_;
  if (!stop_.exchange(true) && last != 0) raise(longest_silence_ns_, now_ns() - last);
}

void LoadLedger::violation(const std::string& text) {
  const std::lock_guard lock{mutex_};
  ++violations_total_;
  if (options_.on_violation) options_.on_violation(text);
  if (violations_.size() < kViolationsShown) violations_.push_back(text);
}

void LoadLedger::interrupted(Reason reason) {
  const std::lock_guard lock{mutex_};
  ++session_events_.interrupted[reason];
}

void LoadLedger::resumed() {
  const std::lock_guard lock{mutex_};
  ++session_events_.resumed;
}

void LoadLedger::session_ended(Reason reason) {
  const std::lock_guard lock{mutex_};
  ++session_events_.ended[reason];
}

void LoadLedger::hear_all(const metrics::Registry& registry) {
  // What never comes is found by compare().
  static_cast<void>(test::eventually(
      [&] {
        const std::lock_guard lock{mutex_};
        return all_told(session_events_, registry);
      },
      kToldWithin));
}

void LoadLedger::compare(const metrics::Registry& registry) {
  EndCounts told{{"ok", ok_}};
  SessionEvents session_events;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [code, count] : failed_) told[status_of(code)] += count;
    session_events = session_events_;
  }
  for (const std::string& text : compare_ends(told, counted_ends(registry))) violation(text);
  static_cast<void>(test::eventually([&] { return all_ended(registry); }, kToldWithin));
  for (const std::string& text : compare_session_events(session_events, registry)) violation(text);
}

void LoadLedger::fill(LoadReport& report) {
  report.ok = report.operations = ok_;
  for (const auto& [code, count] : failed_) {
    report.failed[std::string{to_string(code)}] = count;
    report.first_failed[std::string{to_string(code)}] = first_failed_[code];
    report.operations += count;
  }
  report.session_events = session_events_.by_text();
  report.blocks_checked = blocks_checked_;
  report.longest_silence_ms = static_cast<std::uint64_t>(longest_silence_ns_ / 1'000'000);
  report.longest_verdict_ms = static_cast<std::uint64_t>(longest_verdict_ns_ / 1'000'000);
  report.longest_overrun_ms =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, longest_overrun_ns_ / 1'000'000));
  report.excused = excused_;
  report.atomics = page_.size();
  report.violations = violations_;
  report.violations_total = violations_total_;
}

}  // namespace remora::fault
