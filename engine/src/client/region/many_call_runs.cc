/// How a ManyCall posts uniform runs: of each pair only the request is filled in, and the lane gets
/// the requests as they are. If a pair does not fit into a run, it and all pairs behind it have
/// records of their own.

#include <algorithm>

#include <remora/assert.h>

#include "client/datapath/uniform_run.h"
#include "client/region/many_call.h"

namespace remora::detail {

namespace {

/// Length of the runs of a call that does not fit into one. Two are in flight at a time: one is
/// filled and posted while the lane has the other.
constexpr std::size_t kPairsOfRun = kManyInFlight / 2;
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

/// Begins pairs as uniform runs. Returns the number of pairs that it has begun; the others need
/// records of their own, or come after the deadline.
template <typename Pair>
std::size_t ManyCall::add_runs(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  note_use(memory_of(pairs.front()));
  run_region_ = &region;
  const std::span<ManyRecord> records = batch_->unchained();
  const std::size_t length = std::clamp<std::size_t>(
      lane_.depth(), 1, pairs.size() > kManyInFlight ? kPairsOfRun : kManyInFlight);
  runs_[0].records = records.first(length);
  runs_[1].records = records.subspan(length, std::min(length, records.size() - length));
  std::size_t begun = 0;
  for (std::size_t turn = 0; begun != pairs.size(); turn ^= 1U) {
    Run& run = runs_[turn];
    while (run.in_flight != 0) wait(1);
    if (begun != 0) {
      chunk_began_ = clock_now();
      expired_ = chunk_began_ >= deadline_;
      if (expired_) break;
    }
    run.first_index = next_index_;
    const std::size_t count = std::min(length, pairs.size() - begun);
    const std::uint64_t bytes = fill_run(region, pairs.subspan(begun, count), run.records);
    if (bytes == 0) break;
    const std::size_t posted =
        post_run(run, batch_->requests().subspan(turn * length, count), bytes);
    next_index_ += posted;
    begun += posted;
    if (posted != count) break;
  }
  return begun;
}

/// Fills `records` with `pairs`, of which there are not more. Returns the sum of their bytes. 0: a
/// pair does not fit into a run, or sorting the pairs may make neighbours of them. Each pair goes
/// through this loop, so it writes no more than the lane needs, and has all registers: the function
/// is not inline.
template <typename Pair>
std::uint64_t ManyCall::fill_run(const RegionGrant& region, std::span<Pair> pairs,
                                 std::span<ManyRecord> records) noexcept {
  const LocalMemory* const memory = last_memory_;
  const RegionGrant::RequestBytes all = region.request_bytes(kOpcodeOf<Pair>, memory);
  ManyRecord* at = records.data();
  std::uint64_t sum_bytes = 0;
  std::uint64_t end = kNowhere;
  for (Pair& pair : pairs) {
    const PairBytes bytes = bytes_of(pair);
    const std::uint64_t remote_address = all.remote_address + bytes.offset_bytes;
    if (memory_of(pair) != memory ||
        !all.admits(bytes.offset_bytes, bytes.local, bytes.length_bytes) || remote_address == end)
      return 0;
    transport::WorkRequest& request = at->request;
    request.local = bytes.local;
    request.length_bytes = static_cast<std::uint32_t>(bytes.length_bytes);
    request.local_key = all.local_key;
    request.remote_address = remote_address;
    request.remote_key = all.remote_key;
    request.opcode = kOpcodeOf<Pair>;
    end = remote_address + bytes.length_bytes;
    sum_bytes += bytes.length_bytes;
    at->next = at + 1;
    ++at;
  }
  ManyRecord& last = records[pairs.size() - 1];
  last.next = nullptr;
  ManyRecord& first = records.front();
  first.length_bytes = first.request.length_bytes;
  first.offset_bytes = bytes_of(pairs.front()).offset_bytes;
  first.memory = last_memory_;
  first.submitted = chunk_began_;
  first.deadline = deadline_;
  first.whole = true;
  first.follows = false;
  first.outcome = {};
  if (batch_->order().may_arrange({.first = &first, .last = &last, .count = pairs.size()}))
    return 0;
  return sum_bytes;
}

/// Posts a run, in parts if the lane has not room for all. Returns the number of operations that it
/// has posted: less if the deadline passes, if the requests are not valid any more, or if the rest
/// has to wait in line with operations of other threads while none of this call is in flight.
std::size_t ManyCall::post_run(Run& run, transport::Chain requests, std::uint64_t bytes) noexcept {
  std::size_t posted = 0;
  while (true) {
    const transport::Chain rest = requests.subspan(posted);
    const std::size_t taken =
        lane_.post_run({.first = &run.records[posted], .requests = rest, .bytes = bytes});
    posted += taken;
    run.in_flight += taken;
    in_flight_ += taken;
    if (posted == requests.size() || in_flight_ == 0) return posted;
    for (const transport::WorkRequest* const request : rest.first(taken))
      bytes -= request->length_bytes;
    wait(1);
    // Meanwhile the grant may have been revoked, or the memory may have got another key with a
    // device that has returned: then the rest is checked and filled in again.
    const RegionGrant::RequestBytes now = run_region_->request_bytes(opcode_, last_memory_);
    if (expired() || now.bytes_max == 0 || now.local_key != requests[posted]->local_key)
      return posted;
    if (taken != 0) fill_like(run.records[posted], run.records.front());
  }
}

/// Takes all operations of runs that have ended. Several that ended together have succeeded.
void ManyCall::collect_runs() noexcept {
  CompletionSink& sink = batch_->sink();
  for (std::size_t left = sink.ready(); left != 0;) {
    const CompletionSink::Run ended = sink.take_run();
    const ManyRecord* const record = ManyBatch::record_of(ended.first);
    Run& run = runs_[record < runs_[1].records.data() ? 0 : 1];
    if (!record->outcome.ok) [[unlikely]]
      fail(*run_region_, run.first_index + static_cast<std::size_t>(record - run.records.data()),
           *record);
    REMORA_ASSERT_HOT(ended.count <= run.in_flight, "a pair in flight ends once");
    run.in_flight -= ended.count;
    in_flight_ -= ended.count;
    left -= ended.count;
  }
}

/// Waits until all runs have ended, so that their records are free for pairs of their own.
void ManyCall::end_runs() noexcept {
  if (in_flight_ != 0) wait(in_flight_);
  run_region_ = nullptr;
  chunk_began_ = clock_now();
  expired_ = chunk_began_ >= deadline_;
}

template std::size_t ManyCall::add_runs<const ReadPair>(const RegionGrant&,
                                                        std::span<const ReadPair>) noexcept;
template std::size_t ManyCall::add_runs<const WritePair>(const RegionGrant&,
                                                         std::span<const WritePair>) noexcept;

}  // namespace remora::detail
