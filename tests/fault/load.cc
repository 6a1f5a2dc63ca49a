#include "load.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include <remora/remora.h>

#include "load_ledger.h"
#include "load_worker.h"
#include "support/resources.h"

namespace remora::fault {
namespace {

using Clock = LoadLedger::Clock;
using std::chrono::milliseconds;

/// Of the wall clock against the steady one: more than a correction of the clock.
constexpr std::chrono::minutes kJump{1};
std::chrono::nanoseconds clocks_apart() {
  return std::chrono::system_clock::now().time_since_epoch() - Clock::now().time_since_epoch();
}

/// One load: an engine, its workers, and the sessions that follow each other.
class LoadRun {
 public:
  LoadRun(const LoadOptions& options, const std::function<bool()>& stop,
          const std::function<void()>& ready);
  LoadReport run();

 private:
  /// What has to be there before a session can be worked with.
  struct Opened {
    Session session;
    Region region;
  };

  [[nodiscard]] EngineOptions engine_options();
  std::optional<Opened> open();
  bool begin_life(const Opened& opened);
  void work(const Opened& opened);
  void end_life(const Opened& opened);
  void look_around();
  Status look_at_words(const Region& region);
  /// `apart`: clocks_apart() before `ready` was called.
  void watch(std::chrono::nanoseconds apart);
  [[nodiscard]] bool time_over() const { return Clock::now() >= until_ || ledger_.stopped(); }

  const LoadOptions& options_;
  const std::function<bool()>& stop_;
  const std::function<void()>& ready_;
  Clock::time_point until_;
  LoadLedger ledger_;
  LoadReport report_;
  std::vector<LoadWorker> workers_;
  std::optional<Engine> engine_;
  std::uint64_t memory_id_ = 0;
  std::uint64_t incarnation_ = 0;  ///< of the region in that memory
  bool ready_said_ = false;
  std::atomic<std::uint64_t> interrupted_{0}, resumed_{0}, lost_{0}, stale_{0}, drained_{0};
};

LoadRun::LoadRun(const LoadOptions& options, const std::function<bool()>& stop,
                 const std::function<void()>& ready)
    : options_{options},
      stop_{stop},
      ready_{ready},
      until_{Clock::now() + options.duration},
      ledger_{options} {
  std::uint64_t first = options.first_block;
  for (std::uint32_t i = 0; i < options.queue_workers + options.sync_workers; ++i) {
    const std::uint32_t depth = i < options.queue_workers ? options.depth : 0;
    const std::uint64_t count = LoadWorker::blocks_for(depth);
    workers_.emplace_back(options_, ledger_, i, first, count, depth);
    first += count;
  }
}

EngineOptions LoadRun::engine_options() {
  EngineOptions made;
  made.client_name = options_.client;
  made.operation_deadline = options_.deadline;
  made.control_deadline = options_.control_deadline;
  made.reconnect_for = options_.reconnect_for;
  made.lanes = options_.lanes;
  made.handlers.on_interrupted = [this](const SessionEvent& event) {
    ++interrupted_;
    ledger_.interrupted(event.reason);
  };
  made.handlers.on_resumed = [this](const SessionEvent& /*event*/) {
    ++resumed_;
    ledger_.resumed();
  };
  made.handlers.on_drain = [this](const SessionEvent& /*event*/) { ++drained_; };
  made.handlers.on_lost = [this](const SessionEvent& event) {
    ++lost_;
    ledger_.session_ended(event.reason);
    ledger_.session_over();
  };
  made.handlers.on_stale = [this](const SessionEvent& event) {
    ++stale_;
    ledger_.session_ended(event.reason);
    ledger_.session_over();
  };
  return made;
}

/// Asks until it is let in, with pauses, as an application would.
std::optional<LoadRun::Opened> LoadRun::open() {
  for (milliseconds pause{20};; pause = std::min(pause * 2, milliseconds{500})) {
    if (time_over()) return std::nullopt;
    ledger_.session_begins();
    auto session = engine_->connect(options_.uri);
    if (session) {
      auto region = engine_->open_region(options_.uri, Rights::kAll);
      if (region) {
        ++report_.opened;
        return Opened{std::move(*session), std::move(*region)};
      }
      ledger_.hear_all(engine_->registry());
    }
    ++report_.open_failures;
    std::this_thread::sleep_for(pause);
  }
}

bool LoadRun::begin_life(const Opened& opened) {
  const std::uint64_t memory_id = opened.session.server().memory_id;
  const std::uint64_t incarnation = opened.region.info().incarnation;
  report_.transport = to_string(opened.region.transport());
  if (memory_id_ == memory_id && incarnation_ == incarnation) return true;
  memory_id_ = memory_id;
  incarnation_ = incarnation;
  ledger_.memory = memory_id + incarnation;
  ++report_.lives;
  for (LoadWorker& worker : workers_)
    worker.new_life((options_.seed << 20U) + (std::uint64_t{report_.lives} << 40U) + 1);
  if (options_.fresh) return true;
  const auto submitted = Clock::now();
  ledger_.begun(LoadKind::kWrite);
  const Status zeroed =
      opened.region.write_zeroes(ByteOffset{0}, kLoadWords * kLoadWordStride, options_.deadline);
  ledger_.ended(LoadKind::kWrite, zeroed, submitted);
  if (!zeroed) return memory_id_ = 0, false;  // from the beginning, in the next session
  for (LoadWorker& worker : workers_)
    if (!worker.take_over(opened.region)) return memory_id_ = 0, false;
  return true;
}

void LoadRun::work(const Opened& opened) {
  std::vector<std::thread> threads;
  for (LoadWorker& worker : workers_)
    threads.emplace_back([this, &worker, &opened] {
      try {
        worker.run(*engine_, opened.region);
      } catch (const std::exception& thrown) {
        ledger_.violation(std::string{"an exception crossed a public function: "} + thrown.what());
        ledger_.stop();
      }
    });
  if (!std::exchange(ready_said_, true)) ready_();
  for (std::thread& thread : threads) thread.join();
}

/// Nothing of this session may land from here on, whatever follows it.
void LoadRun::end_life(const Opened& opened) {
  const bool uncertain = ledger_.take_uncertain();
  if (uncertain && opened.region.connected()) {
    const Status settled = opened.region.settled(std::chrono::seconds{30});
    if (!settled && settled.error().code() == Code::kTimedOut)
      ledger_.violation("settled() never answered: " + settled.error().message());
  }
  // What is not told of while the session is there is never told.
  for (int i = 0; i < 1000 && resumed_ + lost_ + stale_ < interrupted_; ++i)
    std::this_thread::sleep_for(milliseconds{10});
  ledger_.hear_all(engine_->registry());
}

/// What they hold in the end, recorded: an atomic that was lost is seen where it was the last, too.
/// A load without atomics has no words.
Status LoadRun::look_at_words(const Region& region) {
  if (options_.swaps + options_.adds == 0) return ok_status();
  for (std::uint64_t word = 0; word < kLoadWords; ++word) {
    const std::uint64_t offset = word * kLoadWordStride;
    AtomicRecord* const record = ledger_.page().begin(
        ledger_.memory, offset, {.kind = WordOperation::Kind::kAdd},
        static_cast<std::uint32_t>(options_.seed * 100 + workers_.size()), LoadPage::Room::kLast);
    if (record == nullptr) return Error{Code::kLimitExceeded, "records for the last look"};
    const auto submitted = Clock::now();
    ledger_.begun(LoadKind::kAdd);
    const auto found = region.fetch_add(ByteOffset{offset}, 0, options_.deadline);
    ledger_.ended(LoadKind::kAdd, found ? ok_status() : Status{found.error()}, submitted);
    if (!found) return found.error();
    LoadPage::end(*record, Effect::kDone, *found);
  }
  return ok_status();
}

/// Every block and word once more, in a session of its own that nothing disturbs.
void LoadRun::look_around() {
  const auto without = [this](std::string why) { report_.look_error = std::move(why); };
  auto session = engine_->connect(options_.uri);
  if (!session) return without(session.error().message());
  if (session->server().memory_id != memory_id_) return without("there is other memory");
  auto region = engine_->open_region(options_.uri, Rights::kAll);
  if (!region) return without(region.error().message());
  if (region->info().incarnation != incarnation_) return without("the region is another one");
  for (LoadWorker& worker : workers_)
    if (const Status seen = worker.look(*region); !seen) return without(seen.error().message());
  if (const Status seen = look_at_words(*region); !seen) return without(seen.error().message());
  report_.looked_around = true;
}

void LoadRun::watch(std::chrono::nanoseconds apart) {
  constexpr std::chrono::seconds kSecond{1};
  Clock::time_point told_at = Clock::now();
  std::uint64_t told = 0;
  while (!ledger_.stopped()) {
    if (Clock::now() >= until_ || stop_()) ledger_.stop();
    if (options_.each_second && Clock::now() - told_at >= kSecond) {
      told_at = Clock::now();
      const std::uint64_t before = std::exchange(told, ledger_.ok_count());
      options_.each_second(told - before);
    }
    if (const auto now = clocks_apart(); now - apart >= kJump || apart - now >= kJump) {
      apart = now;
      ++report_.clock_jumps;
    }
    std::this_thread::sleep_for(milliseconds{5});
  }
}

LoadReport LoadRun::run() {
  auto engine = Engine::open(engine_options());
  if (!engine) {
    ledger_.violation("no engine: " + engine.error().message());
    ledger_.fill(report_);
    return report_;
  }
  engine_.emplace(std::move(*engine));
  std::thread clock_check{[this, apart = clocks_apart()] { watch(apart); }};
  while (!ledger_.stopped()) {
    const auto opened = open();
    if (!opened) break;
    if (!begin_life(*opened)) continue;
    work(*opened);
    end_life(*opened);
    if (!options_.reopen) break;
  }
  ledger_.stop();
  clock_check.join();
  if (options_.at_rest) options_.at_rest();
  look_around();
  ledger_.compare(engine_->registry());
  engine_.reset();
  if (options_.page.empty()) {
    const Linearizability found = check_words(ledger_.page());
    if (!found.ok()) ledger_.violation("I10: " + found.text);
  }
  ledger_.fill(report_);
  report_.seed = options_.seed;
  report_.interrupted = interrupted_;
  report_.resumed = resumed_;
  report_.lost = lost_;
  report_.stale = stale_;
  report_.drained = drained_;
  return report_;
}

}  // namespace

std::uint64_t blocks_needed(const LoadOptions& options) noexcept {
  return options.queue_workers * LoadWorker::blocks_for(options.depth) +
         options.sync_workers * LoadWorker::blocks_for(0);
}

LoadReport run_load(const LoadOptions& options, const std::function<bool()>& stop,
                    const std::function<void()>& ready) {
  return LoadRun{options, stop, ready}.run();
}

std::string LoadReport::json() const {
  return nlohmann::json{{"transport", transport},
                        {"seed", seed},
                        {"operations", operations},
                        {"ok", ok},
                        {"failed", failed},
                        {"first_failed", first_failed},
                        {"longest_verdict_ms", longest_verdict_ms},
                        {"longest_overrun_ms", longest_overrun_ms},
                        {"longest_silence_ms", longest_silence_ms},
                        {"longest_stall_ms", longest_stall_ms},
                        {"looked_around", looked_around},
                        {"look_error", look_error},
                        {"atomics", atomics},
                        {"blocks_checked", blocks_checked},
                        {"lives", lives},
                        {"opened", opened},
                        {"open_failures", open_failures},
                        {"interrupted", interrupted},
                        {"resumed", resumed},
                        {"lost", lost},
                        {"stale", stale},
                        {"drained", drained},
                        {"session_events", session_events},
                        {"clock_jumps", clock_jumps},
                        {"heap_growth_bytes", heap_growth_bytes},
                        {"violations_total", violations_total},
                        {"violations", violations}}
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

LoadReport LoadReport::from_json(const std::string& line) {
  const nlohmann::json from = nlohmann::json::parse(line);
  LoadReport made;
  made.transport = from.at("transport");
  made.seed = from.at("seed");
  made.operations = from.at("operations");
  made.ok = from.at("ok");
  made.failed = from.at("failed").get<std::map<std::string, std::uint64_t>>();
  made.first_failed = from.at("first_failed").get<std::map<std::string, std::string>>();
  made.longest_verdict_ms = from.at("longest_verdict_ms");
  made.longest_overrun_ms = from.at("longest_overrun_ms");
  made.longest_silence_ms = from.at("longest_silence_ms");
  made.longest_stall_ms = from.at("longest_stall_ms");
  made.looked_around = from.at("looked_around");
  made.look_error = from.at("look_error");
  made.atomics = from.at("atomics");
  made.blocks_checked = from.at("blocks_checked");
  made.lives = from.at("lives");
  made.opened = from.at("opened");
  made.open_failures = from.at("open_failures");
  made.interrupted = from.at("interrupted");
  made.resumed = from.at("resumed");
  made.lost = from.at("lost");
  made.stale = from.at("stale");
  made.drained = from.at("drained");
  made.session_events = from.at("session_events").get<std::map<std::string, std::uint64_t>>();
  made.clock_jumps = from.at("clock_jumps");
  made.heap_growth_bytes = from.at("heap_growth_bytes");
  made.violations_total = from.at("violations_total");
  made.violations = from.at("violations").get<std::vector<std::string>>();
  return made;
}

}  // namespace remora::fault
