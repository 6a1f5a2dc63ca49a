#include "flight.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

#include <remora/metrics/registry.h>

#include "client_counts.h"
#include "raw_session.h"
#include "support/eventually.h"
#include "support/stall_watch.h"

namespace remora::fault {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Memory = FlightMemory;

constexpr Milliseconds kWatched{400};          // in which nothing may complete
constexpr Milliseconds kBreakAfter{500};       // deadline of the operation that breaks the lane
constexpr Milliseconds kDeadline{15'000};      // of the others: the link is whole again long before
constexpr Milliseconds kGraceOfVerdict{2000};  // I3
constexpr Milliseconds kSentWithin{5000};
/// Of a hundred rounds so many may be void, and three in any case.
constexpr std::uint64_t kVoidPercent = 5;
constexpr std::uint64_t kVoidAlways = 3;
constexpr Milliseconds kStandsStill{2000};    // one in which a host did so for longer is
constexpr Milliseconds kCountedWithin{2000};  // the end of an operation is counted a little later

/// What is held back, as vm-link says it at the client's end.
constexpr std::array<const char*, 3> kDirections{"in", "out", "both"};

/// What an operation is, by its tag.
enum class What : std::uint8_t { kRead, kWrite, kAdd };
What what_of(std::uint64_t tag) {
  if (tag < Memory::kReads) return What::kRead;
  return tag < Memory::kReads + Memory::kWrites ? What::kWrite : What::kAdd;
}

std::uint64_t since(Clock::time_point began) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<Milliseconds>(Clock::now() - began).count());
}

/// Packets that the device has sent since it began; 0 where it does not say.
std::uint64_t packets_sent() {
  const char* const device = std::getenv("REMORA_VM_DEVICE");
  if (device == nullptr) return 0;
  std::uint64_t count = 0;
  std::ifstream{std::string{"/sys/class/infiniband/"} + device +
                "/ports/1/hw_counters/sent_pkts"} >>
      count;
  return count;
}

void stand_still(int stopper, Milliseconds time) {
  const std::int64_t ms = time.count();
  if (::write(stopper, &ms, sizeof ms) != sizeof ms)
    throw Exception{Error{Code::kSystem, "the process that stops this one"}.with_errno(errno)};
  std::this_thread::sleep_for(300ms);  // within which it does
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
  [[nodiscard]] Clock::duration awake_since(Clock::time_point began) const {
    const auto now = Clock::now();
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
  /// False: it was void.
  bool engine_round(const Engine& engine, const Region& region, SlotPool& slots,
                    std::uint64_t round);
  static void post_all(Queue& queue, SlotPool& slots, std::uint64_t generation);
  std::size_t take(Queue& queue, Clock::time_point broken);
  void expect_sent(std::uint64_t before);
  void expect_none(Queue& queue, const char* when);
  void judge(const Completion& completion, Clock::time_point broken);
  void expect_once();
  void expect_counted(const metrics::Registry& registry, const EndCounts& before);

  void raw_round(std::uint64_t round);
  static std::size_t post_raw(test::RawSession& session, const test::RawSession::Grant& grant,
                              std::uint64_t generation);
  void collect_raw(test::RawSession& session, Milliseconds patience, Clock::time_point broken);
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

void Flights::post_all(Queue& queue, SlotPool& slots, std::uint64_t generation) {
  std::uint64_t tag = 0;
  for (std::size_t i = 0; i < Memory::kReads; ++i)
    queue.read(ByteOffset{Memory::read_at(i)}, slots.take(), tag++);
  for (std::size_t i = 0; i < Memory::kWrites; ++i) {
    Slot slot = slots.take();
    Memory::fill(slot.bytes(), generation, i);
    queue.write(ByteOffset{Memory::write_at(i)}, std::move(slot), tag++);
  }
  for (std::size_t i = 0; i < Memory::kAdds; ++i)
    queue.fetch_add(ByteOffset{Memory::word_at(i)}, generation, tag++);
  queue.submit().value();
}

/// One that has ended: as it may, and once.
void Flights::judge(const Completion& completion, Clock::time_point broken) {
  const std::uint64_t tag = completion.tag();
  const What what = what_of(tag);
  const Code code = completion.ok() ? Code{} : completion.error().code();
  ++told_[tag];
  ++ends_[completion.ok() ? "ok" : status_of(code)];
  ++report_.operations;
  if (completion.ok()) {
    ++report_.ok;
  } else {
    ++report_.failed[std::string{to_string(code)}];
    report_.longest_verdict_ms = std::max(report_.longest_verdict_ms, since(broken));
  }
  const std::string name = "operation " + std::to_string(tag);
  if (what != What::kRead) {
    if (completion.ok() || code != Code::kIndeterminate)
      flight_wrong("I6: " + name + " of unknown effect ended as " +
                   (completion.ok() ? "ok" : completion.error().message()));
    return;
  }
  if (!completion.ok())
    flight_wrong(name + ", a read, was not carried out again: " + completion.error().message());
}

std::size_t Flights::take(Queue& queue, Clock::time_point broken) {
  std::size_t count = 0;
  for (Completion& completion : queue.poll()) {
    judge(completion, broken);
    ++count;
    if (!completion.ok() || what_of(completion.tag()) != What::kRead) continue;
    std::vector<std::byte> expected(Memory::kBlockBytes);
    Memory::fill(expected, 1, completion.tag());
    const std::span<std::byte> seen = completion.slot().bytes();
    if (!std::equal(expected.begin(), expected.end(), seen.begin(), seen.end()))
      wrong("I1: read " + std::to_string(completion.tag()) + " brought something else");
  }
  return count;
}

/// On the wire: a packet a request at least has left the device since.
void Flights::expect_sent(std::uint64_t before) {
  const Clock::time_point until = Clock::now() + kSentWithin;
  std::uint64_t sent = 0;
  do {
    sent = packets_sent() - before;
    if (sent >= Memory::kOperations) return;
    std::this_thread::sleep_for(2ms);
  } while (Clock::now() < until);
  flight_wrong("only " + std::to_string(sent) + " packets had left the device");
}

void Flights::expect_none(Queue& queue, const char* when) {
  const Clock::time_point until = Clock::now() + kWatched;
  std::size_t ended = 0;
  while (Clock::now() < until) {
    ended += take(queue, Clock::now());
    std::this_thread::sleep_for(10ms);
  }
  if (ended != 0)
    flight_wrong("not in flight: " + std::to_string(ended) + " of " +
                 std::to_string(Memory::kOperations) + " had ended " + when);
}

/// Of this round's operations and the one that broke the lane (I9).
void Flights::expect_counted(const metrics::Registry& registry, const EndCounts& before) {
  const auto wrongly = [&] {
    EndCounts since = counted_ends(registry);
    for (auto& [status, count] : since) count -= before.at(status);
    return compare_ends(ends_, since);
  };
  static_cast<void>(test::eventually([&] { return wrongly().empty(); }, kCountedWithin));
  for (std::string& text : wrongly()) wrong(std::move(text));
}

void Flights::expect_once() {
  if (options_.counts_wrong) {
    ++told_[0];
    ++ends_["ok"];
  }
  for (std::size_t tag = 0; tag < told_.size(); ++tag)
    if (told_[tag] != 1)
      wrong("I2: operation " + std::to_string(tag) + " ended " + std::to_string(told_[tag]) +
            " times");
}

void Flights::engine_rounds() {
  const Engine engine = open_engine();
  const Region region = open(engine);
  SlotPool slots = engine.allocate_slots(Memory::kOperations + 1, Memory::kBlockBytes).value();
  const std::uint64_t max_void = std::max(kVoidAlways, options_.rounds * kVoidPercent / 100);
  for (std::uint64_t round = 0; report_.rounds < options_.rounds; ++round) {
    if (engine_round(engine, region, slots, round)) {
      ++report_.rounds;
    } else if (++report_.void_rounds > max_void) {
      wrong("the session ended before anything was in flight, or did not, or a host stood still, " +
            std::to_string(max_void + 1) + " times");
      break;
    }
  }
  report_.resumed = resumed_;
  if (resumed_ < options_.rounds)
    wrong("the session was resumed " + std::to_string(resumed_) + " times");
  if (lost_ != 0) wrong("the session was lost");
}

bool Flights::engine_round(const Engine& engine, const Region& region, SlotPool& slots,
                           std::uint64_t round) {
  told_ = {};
  flight_violations_.clear();
  ends_ = {};
  const EndCounts ended_before = counted_ends(engine.registry());
  const auto posted = [&] {
    return static_cast<std::uint64_t>(
        engine.registry().sum("remora_client_work_requests_total").value());
  };
  Queue queue = region.queue({.depth = Memory::kOperations, .deadline = kDeadline}).value();
  Queue breaker = region.queue({.depth = 1, .deadline = kBreakAfter}).value();
  // A round that begins while the session is away would post nothing.
  for (const auto until = Clock::now() + 10s; !region.connected() && Clock::now() < until;)
    std::this_thread::sleep_for(5ms);
  const std::uint64_t before = posted();
  const std::uint64_t interrupted = interrupted_;
  hold(round);
  const Clock::time_point began = Clock::now();
  const std::uint64_t sent = packets_sent();
  post_all(queue, slots, generation(round));
  expect_sent(sent);
  expect_none(queue, "while nothing could arrive");
  if (posted() - before != Memory::kOperations)
    flight_wrong(std::to_string(posted() - before) + " requests were posted");
  // Its lease was over before: on a host that stands still, or takes long to hold packets back.
  const bool in_flight = interrupted_ == interrupted;
  if (in_flight) report_.in_flight += queue.size();
  Clock::time_point broken;
  Clock::duration stalled = watch_.within(began, Clock::now());
  if (!in_flight) {
    broken = Clock::now();
    command(options_.release);
  } else if (options_.end == LaneEnd::kServer) {
    const Clock::time_point stopped = Clock::now();
    stand_still(stopper_, options_.stop);
    watch_.overlook(stopped);
    broken = Clock::now();
    stalled += broken - stopped - options_.stop;
    expect_none(queue, "while the client stood still");
    command(options_.release);
  } else {
    breaker.read(ByteOffset{200 * Memory::kBlockBytes}, slots.take(), 0);
    breaker.submit().value();
    for (const Completion& completion : breaker.wait(1)) {
      ++ends_[completion.ok() ? "ok" : status_of(completion.error().code())];
      if (completion.ok() || completion.error().code() != Code::kTimedOut)
        wrong("the operation that was to break the lane ended otherwise");
    }
    broken = Clock::now();
    // With the link still cut: what cannot be known is said at once, what can be repeated waits.
    std::size_t ended = 0;
    while (ended < Memory::kWrites + Memory::kAdds && awake_since(broken) < kGraceOfVerdict) {
      ended += take(queue, broken);
      std::this_thread::sleep_for(5ms);
    }
    if (ended != Memory::kWrites + Memory::kAdds)
      wrong("I3: " + std::to_string(ended) + " writes and atomics had ended in time");
    command(options_.release);
  }
  // With `--end server` the client is not told, since its link is still cut when its lanes go: it
  // has to receive nothing for the lease, and to come back. All that is promised is the deadline,
  // from when they were posted; what the client was made to stand still is a part of it.
  while (queue.size() != 0 &&
         Clock::now() - began - watch_.within(broken, Clock::now()) < kDeadline + kGraceOfVerdict) {
    take(queue, broken);
    std::this_thread::sleep_for(5ms);
  }
  if (queue.size() != 0) wrong("I3: " + std::to_string(queue.size()) + " are still in flight");
  expect_once();
  expect_counted(engine.registry(), ended_before);
  if (const Status settled = region.settled(10s); !settled)
    wrong("not settled: " + settled.error().message());
  stalled += watch_.within(broken, Clock::now());
  // A server that has stood still itself gives its clients their lease once more.
  const bool broke = options_.end != LaneEnd::kServer || interrupted_ != interrupted;
  const bool counts = in_flight && broke && stalled < kStandsStill;
  look(round, counts);
  if (counts)
    report_.violations.insert(report_.violations.end(), flight_violations_.begin(),
                              flight_violations_.end());
  return counts;
}

/// As a chain, posted with one doorbell. How many were taken.
std::size_t Flights::post_raw(test::RawSession& session, const test::RawSession::Grant& grant,
                              std::uint64_t generation) {
  if (grant.extents.empty() || grant.extents[0].length_bytes < Memory::kBytes)
    throw Exception{Error{Code::kInvalidArgument, "the region's first extent is too short"}};
  constexpr std::uint32_t kLength = 64;
  std::array<transport::WorkRequest, Memory::kOperations> requests;
  std::array<const transport::WorkRequest*, Memory::kOperations> chain{};
  for (std::size_t tag = 0; tag < requests.size(); ++tag) {
    transport::WorkRequest& request = requests[tag];
    const std::span<std::byte> local = session.local().subspan(tag * kLength, kLength);
    std::uint64_t at = 0;
    request.local = local.data();
    request.local_key = session.local_key();
    request.length_bytes = kLength;
    switch (what_of(tag)) {
      case What::kRead: at = Memory::read_at(tag); break;
      case What::kWrite:
        at = Memory::write_at(tag - Memory::kReads);
        request.opcode = transport::Opcode::kWrite;
        Memory::fill(local, generation, tag - Memory::kReads);
        break;
      case What::kAdd:
        at = Memory::word_at(tag - Memory::kReads - Memory::kWrites);
        request.opcode = transport::Opcode::kFetchAdd;
        request.length_bytes = sizeof(std::uint64_t);
        request.compare_or_add = generation;
    }
    request.remote_address = grant.extents[0].remote_address + at;
    request.remote_key = grant.extents[0].remote_key;
    chain[tag] = &request;
  }
  return session.lane().post(chain, 0).taken;
}

/// Ends as the lane tells of them, until all of them have or `patience` is over.
void Flights::collect_raw(test::RawSession& session, Milliseconds patience,
                          Clock::time_point broken) {
  std::size_t ended = 0;
  while (ended < Memory::kOperations && awake_since(broken) < patience) {
    std::array<transport::LaneCompletion, Memory::kOperations> found;
    const std::size_t count = session.lane().poll(found);
    for (std::size_t i = 0; i < count; ++i) {
      const auto [sequence, status, vendor] = found[i];
      ++ended;
      ++report_.operations;
      if (sequence < told_.size())
        ++told_[sequence];
      else
        wrong("a completion of a request that there never was");
      if (status == CompletionStatus::kSuccess) {
        wrong("request " + std::to_string(sequence) + " was answered");
        continue;
      }
      ++report_.failed[std::string{to_string(status)}];
      report_.longest_verdict_ms = std::max(report_.longest_verdict_ms, since(broken));
    }
    if (count == 0) std::this_thread::sleep_for(2ms);
  }
}

/// The server has no session but that of the caller.
void Flights::expect_server_has_ended_it() {
  const Engine engine = open_engine();
  const Session session = engine.connect(options_.uri).value();
  const Clock::time_point until = Clock::now() + 10s;
  std::uint64_t sessions = 0;
  while (Clock::now() < until) {
    const auto usage = session.usage();
    if (sessions = usage ? usage->sessions : 0; sessions == 1) return;
    std::this_thread::sleep_for(100ms);
  }
  wrong("the server still has " + std::to_string(sessions) + " sessions");
}

void Flights::raw_round(std::uint64_t round) {
  told_ = {};
  const Uri uri = Uri::parse(options_.uri).value();
  test::RawSession session{{uri.host, uri.port}};
  const test::RawSession::Grant grant = session.open(uri.region, Rights::kAll);
  hold(round);
  const std::uint64_t sent = packets_sent();
  if (const std::size_t taken = post_raw(session, grant, generation(round));
      taken != Memory::kOperations)
    wrong(std::to_string(taken) + " requests were posted");
  expect_sent(sent);
  collect_raw(session, kWatched, Clock::now());
  const auto early = static_cast<std::size_t>(
      std::count_if(told_.begin(), told_.end(), [](std::uint32_t times) { return times != 0; }));
  if (early != 0) wrong("not in flight: " + std::to_string(early) + " had ended");
  report_.in_flight += Memory::kOperations - early;
  if (options_.end == LaneEnd::kRawClient) {
    const Clock::time_point broken = Clock::now();
    session.lane().move_to_error();
    collect_raw(session, kGraceOfVerdict, broken);  // with the link still cut
    command(options_.release);
  } else {
    session.send_control(std::vector<std::byte>(100, std::byte{0x5a}));  // no message: it ends
    std::this_thread::sleep_for(500ms);
    command(options_.release);
    expect_server_has_ended_it();
    // A NIC that tries again gets no answer any more. rxe does so for ever,
    // and the server's goodbye was lost: it is the client's to give up.
    collect_raw(session, kWatched, Clock::now());
    if (std::any_of(told_.begin(), told_.end(), [](std::uint32_t times) { return times != 0; }))
      wrong("requests ended by themselves");
    const Clock::time_point broken = Clock::now();
    session.lane().move_to_error();
    collect_raw(session, kGraceOfVerdict, broken);
  }
  expect_once();
  session.lane().close();
  session.endpoint().shutdown();
  expect_server_has_ended_it();
  look(round);
  ++report_.rounds;
}

}  // namespace

std::string to_string(LaneEnd end) {
  switch (end) {
    case LaneEnd::kClient: return "client";
    case LaneEnd::kServer: return "server";
    case LaneEnd::kRawClient: return "raw-client";
    case LaneEnd::kRawServer: return "raw-server";
  }
  return "?";
}

std::optional<LaneEnd> lane_end_of(const std::string& text) {
  for (const LaneEnd end :
       {LaneEnd::kClient, LaneEnd::kServer, LaneEnd::kRawClient, LaneEnd::kRawServer})
    if (to_string(end) == text) return end;
  return std::nullopt;
}

std::string FlightReport::line(LaneEnd end, std::uint64_t seed) const {
  std::string codes;
  for (const auto& [code, count] : failed) {
    std::string word = code;
    std::replace(word.begin(), word.end(), ' ', '_');
    codes += (codes.empty() ? "" : ",") + word + "=" + std::to_string(count);
  }
  return "fault: LaneErrorTest." + to_string(end) +
         " transport=rdma rounds=" + std::to_string(rounds) +
         (void_rounds == 0 ? "" : " void_rounds=" + std::to_string(void_rounds)) +
         " operations=" + std::to_string(operations) + " ok=" + std::to_string(ok) + " failed{" +
         codes + "} longest_verdict_ms=" + std::to_string(longest_verdict_ms) +
         " longest_stall_ms=" + std::to_string(longest_stall_ms) +
         " in_flight=" + std::to_string(in_flight) + " landed=" + std::to_string(landed) +
         " resumed=" + std::to_string(resumed) + " seed=" + std::to_string(seed);
}

FlightReport run_flights(const FlightOptions& options, int stopper) {
  return Flights{options, stopper}.run();
}

int start_stopper() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return -1;
  const pid_t stopped = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child > 0) {
    ::close(ends[0]);
    return ends[1];
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(ends[1]);
  std::int64_t ms = 0;
  while (::read(ends[0], &ms, sizeof ms) == sizeof ms) {
    ::kill(stopped, SIGSTOP);
    ::usleep(static_cast<useconds_t>(ms) * 1000);
    ::kill(stopped, SIGCONT);
  }
  ::_exit(0);
}

}  // namespace remora::fault
