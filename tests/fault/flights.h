#pragma once

/// One run of operations in flight under lanes that break (flight.h): its rounds, what they share.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/remora.h>

#include "client_counts.h"
#include "flight.h"
#include "raw_session.h"
#include "support/stall_watch.h"

namespace remora::fault {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only
using Milliseconds = std::chrono::milliseconds;
using Memory = FlightMemory;

inline constexpr Milliseconds kWatched{400};     // in which nothing may complete
inline constexpr Milliseconds kBreakAfter{500};  // deadline of the operation that breaks the lane
inline constexpr Milliseconds kDeadline{
    15'000};  // of the others: the link is whole again long before
inline constexpr Milliseconds kGraceOfVerdict{2000};  // I3
inline constexpr Milliseconds kSentWithin{5000};
/// Of a hundred rounds so many may be void, and three in any case.
inline constexpr std::uint64_t kVoidPercent = 5;
inline constexpr std::uint64_t kVoidAlways = 3;
inline constexpr Milliseconds kStandsStill{2000};  // one in which a host did so for longer is
inline constexpr Milliseconds kCountedWithin{
    2000};  // the end of an operation is counted a little later

/// What is held back, as vm-link says it at the client's end.
inline constexpr std::array<const char*, 3> kDirections{"in", "out", "both"};

/// What an operation is, by its tag.
enum class What : std::uint8_t { kRead, kWrite, kAdd };
inline What what_of(std::uint64_t tag) {
  if (tag < Memory::kReads) return What::kRead;
  return tag < Memory::kReads + Memory::kWrites ? What::kWrite : What::kAdd;
}

inline std::uint64_t since(std::chrono::steady_clock::time_point began) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began).count());
}

/// Packets that the device has sent since it began; 0 where it does not say.
inline std::uint64_t packets_sent() {
  const char* const device = std::getenv("REMORA_VM_DEVICE");
  if (device == nullptr) return 0;
  std::uint64_t count = 0;
  std::ifstream{std::string{"/sys/class/infiniband/"} + device +
                "/ports/1/hw_counters/sent_pkts"} >>
      count;
  return count;
}

/// All of one run.
class Flights {
 public:
  Flights(const FlightOptions& options, int stopper) : options_{options}, stopper_{stopper} {}

  FlightReport run() {
    {
      const Engine engine = open_engine();
      memory_.begin(open(engine));
    }
    if (raw()) {
      for (std::uint64_t round = 0; round < options_.rounds; ++round) raw_round(round);
    } else {
      engine_rounds();
    }
    report_.landed = memory_.landed();
    bool in = false;
    for (std::uint64_t round = 0; round < options_.rounds; ++round)
      in = in || direction(round) == "in";
    if (in && report_.landed == 0)
      wrong("nothing landed where only the answers were held back: nothing was on the wire");
    report_.longest_stall_ms = static_cast<std::uint64_t>(watch_.longest().count());
    return std::move(report_);
  }

 private:
  /// Since `began`, less what this process was not run meanwhile.
  [[nodiscard]] std::chrono::steady_clock::duration awake_since(
      std::chrono::steady_clock::time_point began) const {
    const auto now = std::chrono::steady_clock::now();
    return now - began - watch_.within(began, now);
  }
  [[nodiscard]] bool raw() const {
    return options_.end == LaneEnd::kRawClient || options_.end == LaneEnd::kRawServer;
  }
  /// The server's end is not to be heard of by the client; the raw one is told over the same link,
  /// so that the server must hear.
  [[nodiscard]] std::string direction(std::uint64_t round) const {
    if (options_.end == LaneEnd::kRawServer) return "in";
    if (options_.end == LaneEnd::kServer) return round % 2 == 0 ? "in" : "both";
    return kDirections[round % kDirections.size()];
  }
  [[nodiscard]] std::string in_round(const std::string& text) const {
    return "round " + std::to_string(report_.rounds) + ": " + text;
  }
  void wrong(const std::string& text) { report_.violations.push_back(in_round(text)); }
  /// What is promised of operations that are in flight, and of no others.
  void flight_wrong(const std::string& text) { flight_violations_.push_back(in_round(text)); }
  static void command(const std::string& text) {
    // NOLINTNEXTLINE(cert-env33-c,concurrency-mt-unsafe): the script's own words
    if (std::system(text.c_str()) != 0)
      throw Exception{Error{Code::kSystem, "command"}.with_subject(text)};
  }
  void hold(std::uint64_t round) const {
    if (!options_.lets_pass) command(options_.hold + ' ' + direction(round));
  }
  [[nodiscard]] Engine open_engine() const {
    EngineOptions options;
    options.client_name = "fault-flight";
    options.operation_deadline = options.control_deadline = kDeadline;
    options.handlers.on_interrupted = [this](const SessionEvent&) { ++interrupted_; };
    options.handlers.on_resumed = [this](const SessionEvent&) { ++resumed_; };
    options.handlers.on_lost = [this](const SessionEvent&) { ++lost_; };
    return Engine::open(options).value();
  }
  [[nodiscard]] Region open(const Engine& engine) const {
    return engine.open_region(options_.uri, Rights::kAll).value();
  }
  /// By a client that has seen none of it.
  void look(std::uint64_t round, bool counts = true) {
    const Engine engine = open_engine();
    const bool may_have_landed = !counts || direction(round) == "in" || options_.lets_pass;
    for (const std::string& text :
         memory_.look(open(engine), generation(round), may_have_landed, options_.writes_late))
      wrong(text);
  }
  /// Of the first round 2: all is of generation 1 before.
  static std::uint64_t generation(std::uint64_t round) { return round + 2; }

  void engine_rounds();
  std::chrono::steady_clock::time_point break_by_deadline(Queue& queue, Queue& breaker,
                                                          SlotPool& slots);
  /// False: it was void.
  bool engine_round(const Engine& engine, const Region& region, SlotPool& slots,
                    std::uint64_t round);
  static void post_all(Queue& queue, SlotPool& slots, std::uint64_t generation);
  std::size_t take(Queue& queue, std::chrono::steady_clock::time_point broken);
  void expect_sent(std::uint64_t before);
  void expect_none(Queue& queue, const char* when);
  void judge(const Completion& completion, std::chrono::steady_clock::time_point broken);
  void expect_once();
  void expect_counted(const metrics::Registry& registry, const EndCounts& before);

  void raw_round(std::uint64_t round);
  static std::size_t post_raw(test::RawSession& session, const test::RawSession::Grant& grant,
                              std::uint64_t generation);
  void collect_raw(test::RawSession& session, Milliseconds patience,
                   std::chrono::steady_clock::time_point broken);
  void expect_server_has_ended_it();

  const FlightOptions& options_;
  int stopper_;
  test::StallWatch watch_;
  FlightMemory memory_;
  FlightReport report_;
  std::vector<std::string> flight_violations_;             ///< of this round
  std::array<std::uint32_t, Memory::kOperations> told_{};  ///< how often, in this round
  EndCounts ends_;                                         ///< as what, in this round
  mutable std::atomic<std::uint64_t> interrupted_{0}, resumed_{0}, lost_{0};
};

}  // namespace remora::fault
