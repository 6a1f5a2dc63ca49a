#include "flight.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <signal.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

#include "flights.h"
#include "support/eventually.h"

namespace remora::fault {
namespace {

void stand_still(int stopper, Milliseconds time) {
  const std::int64_t ms = time.count();
  if (::write(stopper, &ms, sizeof ms) != sizeof ms)
    throw Exception{Error{Code::kSystem, "the process that stops this one"}.with_errno(errno)};
  std::this_thread::sleep_for(300ms);  // within which it does
}

}  // namespace

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
void Flights::judge(const Completion& completion, std::chrono::steady_clock::time_point broken) {
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

std::size_t Flights::take(Queue& queue, std::chrono::steady_clock::time_point broken) {
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
  const std::chrono::steady_clock::time_point until =
      std::chrono::steady_clock::now() + kSentWithin;
  std::uint64_t sent = 0;
  do {
    sent = packets_sent() - before;
    if (sent >= Memory::kOperations) return;
    std::this_thread::sleep_for(2ms);
  } while (std::chrono::steady_clock::now() < until);
  flight_wrong("only " + std::to_string(sent) + " packets had left the device");
}

void Flights::expect_none(Queue& queue, const char* when) {
  const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + kWatched;
  std::size_t ended = 0;
  while (std::chrono::steady_clock::now() < until) {
    ended += take(queue, std::chrono::steady_clock::now());
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

/// Breaks the lane by an operation whose deadline passes. When that was.
std::chrono::steady_clock::time_point Flights::break_by_deadline(Queue& queue, Queue& breaker,
                                                                 SlotPool& slots) {
  breaker.read(ByteOffset{200 * Memory::kBlockBytes}, slots.take(), 0);
  breaker.submit().value();
  for (const Completion& completion : breaker.wait(1)) {
    ++ends_[completion.ok() ? "ok" : status_of(completion.error().code())];
    if (completion.ok() || completion.error().code() != Code::kTimedOut)
      wrong("the operation that was to break the lane ended otherwise");
  }
  const std::chrono::steady_clock::time_point broken = std::chrono::steady_clock::now();
  // With the link still cut: what cannot be known is said at once, what can be repeated waits.
  std::size_t ended = 0;
  while (ended < Memory::kWrites + Memory::kAdds && awake_since(broken) < kGraceOfVerdict) {
    ended += take(queue, broken);
    std::this_thread::sleep_for(5ms);
  }
  if (ended != Memory::kWrites + Memory::kAdds)
    wrong("I3: " + std::to_string(ended) + " writes and atomics had ended in time");
  return broken;
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
  for (const auto until = std::chrono::steady_clock::now() + 10s;
       !region.connected() && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(5ms);
  const std::uint64_t before = posted();
  const std::uint64_t interrupted = interrupted_;
  hold(round);
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  const std::uint64_t sent = packets_sent();
  post_all(queue, slots, generation(round));
  expect_sent(sent);
  expect_none(queue, "while nothing could arrive");
  if (posted() - before != Memory::kOperations)
    flight_wrong(std::to_string(posted() - before) + " requests were posted");
  // Its lease was over before: on a host that stands still, or takes long to hold packets back.
  const bool in_flight = interrupted_ == interrupted;
  if (in_flight) report_.in_flight += queue.size();
  std::chrono::steady_clock::time_point broken;
  std::chrono::steady_clock::duration stalled =
      watch_.within(began, std::chrono::steady_clock::now());
  if (!in_flight) {
    broken = std::chrono::steady_clock::now();
    command(options_.release);
  } else if (options_.end == LaneEnd::kServer) {
    const std::chrono::steady_clock::time_point stopped = std::chrono::steady_clock::now();
    stand_still(stopper_, options_.stop);
    watch_.overlook(stopped);
    broken = std::chrono::steady_clock::now();
    stalled += broken - stopped - options_.stop;
    expect_none(queue, "while the client stood still");
    command(options_.release);
  } else {
    broken = break_by_deadline(queue, breaker, slots);
    command(options_.release);
  }
  // With `--end server` the client is not told, since its link is still cut when its lanes go: it
  // has to receive nothing for the lease, and to come back. All that is promised is the deadline,
  // from when they were posted; what the client was made to stand still is a part of it.
  while (queue.size() != 0 && std::chrono::steady_clock::now() - began -
                                      watch_.within(broken, std::chrono::steady_clock::now()) <
                                  kDeadline + kGraceOfVerdict) {
    take(queue, broken);
    std::this_thread::sleep_for(5ms);
  }
  if (queue.size() != 0) wrong("I3: " + std::to_string(queue.size()) + " are still in flight");
  expect_once();
  expect_counted(engine.registry(), ended_before);
  if (const Status settled = region.settled(10s); !settled)
    wrong("not settled: " + settled.error().message());
  stalled += watch_.within(broken, std::chrono::steady_clock::now());
  // A server that has stood still itself gives its clients their lease once more.
  const bool broke = options_.end != LaneEnd::kServer || interrupted_ != interrupted;
  const bool counts = in_flight && broke && stalled < kStandsStill;
  look(round, counts);
  if (counts)
    report_.violations.insert(report_.violations.end(), flight_violations_.begin(),
                              flight_violations_.end());
  return counts;
}

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
