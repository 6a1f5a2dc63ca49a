/// Rounds below the engine: requests that a lane takes, and a lane that one of its ends breaks.

#include <algorithm>
#include <array>
#include <span>
#include <thread>
#include <vector>

#include "flights.h"

namespace remora::fault {

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
        request.operands.atomic.compare_or_add = generation;
    }
    request.remote_address = grant.extents[0].remote_address + at;
    request.remote_key = grant.extents[0].remote_key;
    chain[tag] = &request;
  }
  return session.lane().post(chain, 0).taken;
}

/// Ends as the lane tells of them, until all of them have or `patience` is over.
void Flights::collect_raw(test::RawSession& session, Milliseconds patience,
                          std::chrono::steady_clock::time_point broken) {
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
  const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + 10s;
  std::uint64_t sessions = 0;
  while (std::chrono::steady_clock::now() < until) {
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
  collect_raw(session, kWatched, std::chrono::steady_clock::now());
  const auto early = static_cast<std::size_t>(
      std::count_if(told_.begin(), told_.end(), [](std::uint32_t times) { return times != 0; }));
  if (early != 0) wrong("not in flight: " + std::to_string(early) + " had ended");
  report_.in_flight += Memory::kOperations - early;
  if (options_.end == LaneEnd::kRawClient) {
    const std::chrono::steady_clock::time_point broken = std::chrono::steady_clock::now();
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
    collect_raw(session, kWatched, std::chrono::steady_clock::now());
    if (std::any_of(told_.begin(), told_.end(), [](std::uint32_t times) { return times != 0; }))
      wrong("requests ended by themselves");
    const std::chrono::steady_clock::time_point broken = std::chrono::steady_clock::now();
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

}  // namespace remora::fault
