/// How a ManyCall posts uniform runs: of each pair only the request is filled in, and the lane gets
/// the requests as they are. If a pair does not fit into a run, it and all pairs behind it have
/// records of their own.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include <remora/assert.h>

#include "client/datapath/uniform_run.h"
#include "client/region/many_call.h"

namespace remora::detail {

namespace {

/// Length of the runs of a call that does not fit into one. Two are in flight at a time: one is
/// filled and posted while the lane has the other.
constexpr std::size_t kPairsOfRun = kManyInFlight / 2;
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

// Two neighbouring members of a request are written as one word, with one store.
using transport::WorkRequest;
static_assert(offsetof(WorkRequest, length_bytes) + 4 == offsetof(WorkRequest, local_key));
static_assert(offsetof(WorkRequest, remote_key) + 4 == offsetof(WorkRequest, opcode));
static_assert(offsetof(WorkRequest, remote_key) + 8 <= offsetof(WorkRequest, operands));
constexpr bool kLittle = std::endian::native == std::endian::little;

/// `length_bytes` and `local_key` of a request.
[[nodiscard]] constexpr std::uint64_t word_of_length(std::uint32_t length_bytes,
                                                     std::uint32_t local_key) noexcept {
  return kLittle ? length_bytes | std::uint64_t{local_key} << 32U
                 : std::uint64_t{length_bytes} << 32U | local_key;
}
/// `remote_key` and `opcode` of a request, and the unused bytes behind these.
[[nodiscard]] constexpr std::uint64_t word_of_key(std::uint32_t remote_key,
                                                  transport::Opcode opcode) noexcept {
  const auto code = static_cast<std::uint64_t>(opcode);
  return kLittle ? remote_key | code << 32U : std::uint64_t{remote_key} << 32U | code << 24U;
}

}  // namespace

/// Begins pairs as uniform runs. Returns the number of pairs that it has begun; the others need
/// records of their own, or come after the deadline.
template <typename Pair>
std::size_t ManyCall::add_runs(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  note_use(memory_of(pairs.front()), region.needs_keys());
  run_region_ = &region;
  // Both runs fit into the batch: if the first one has more than half of the records, all other
  // pairs fit into the rest.
  ManyRecord* const records = batch_->unchained().data();
  const std::size_t length =
      pairs.size() > kManyInFlight ? std::min(batch_->max_run(), kPairsOfRun) : batch_->max_run();
  std::size_t begun = 0;
  for (std::size_t first = 0;; first = first == 0 ? length : 0) {
    Run& run = runs_[first == 0 ? 0 : 1];
    if (begun != 0) {
      while (run.in_flight != 0) wait(1);
      chunk_began_ = clock_now();
      expired_ = chunk_began_ >= deadline_;
      if (expired_) return begun;
    }
    run.records = records + first;
    const std::size_t count = std::min(length, pairs.size() - begun);
    const std::size_t posted = begin_run(run, region, pairs.subspan(begun, count),
                                         batch_->requests().subspan(first, count));
    begun += posted;
    if (posted != count || begun == pairs.size()) return begun;
  }
}

/// Fills and posts a run of `pairs`. Returns the number of pairs that it has begun, from the first
/// one on: see post_run(), or 0 if the pairs do not fit into a run.
template <typename Pair>
[[gnu::always_inline]] inline std::size_t ManyCall::begin_run(Run& run, const RegionGrant& region,
                                                              std::span<Pair> pairs,
                                                              transport::Chain requests) noexcept {
  const std::uint64_t bytes = last_memory_ != nullptr ? fill_run<true>(region, pairs, run.records)
                                                      : fill_run<false>(region, pairs, run.records);
  if (bytes == 0) return 0;
  run.first_index = next_index_;
  const std::size_t posted = post_run(run, requests, bytes);
  next_index_ += posted;
  return posted;
}

/// Fills as many of `records` as there are `pairs`. Returns the sum of their bytes. 0: a pair does
/// not fit into a run, or sorting the pairs may make neighbours of them. `kKnown`: the engine knows
/// their local memory. Each pair goes through the inner loop, so it writes no more than the lane
/// needs, and has all registers: the function is not inline.
template <bool kKnown, typename Pair>
std::uint64_t ManyCall::fill_run(const RegionGrant& region, std::span<Pair> pairs,
                                 ManyRecord* records) noexcept {
  const LocalMemory* const memory = last_memory_;
  const RegionGrant::RequestBytes all = region.request_bytes(kOpcodeOf<Pair>, memory);
  const std::uint64_t remote_word = word_of_key(all.remote_key, kOpcodeOf<Pair>);
  ManyRecord* at = records;
  Pair* pair = pairs.data();
  Pair* const behind = pair + pairs.size();
  std::uint64_t sum_bytes = 0;
  std::uint64_t end = kNowhere;
  while (pair != behind) {
    // Pairs that follow each other usually have one length, whose check and words they share.
    const std::size_t length_bytes = bytes_of(*pair).length_bytes;
    if (!all.admits_length(length_bytes)) return 0;
    const std::uint64_t offset_max = all.size_bytes - length_bytes;
    const std::uint64_t local_word =
        word_of_length(static_cast<std::uint32_t>(length_bytes), all.local_key);
    Pair* const first = pair;
    do {
      const PairBytes bytes = bytes_of(*pair);
      const std::uint64_t remote_address = all.remote_address + bytes.offset_bytes;
      // Bytes of known memory are not null: as in fits_besides().
      if (memory_of(*pair) != memory || bytes.offset_bytes > offset_max ||
          (!kKnown && bytes.local == nullptr) || remote_address == end)
        return 0;
      transport::WorkRequest& request = at->request;
      request.local = bytes.local;
      std::memcpy(&request.length_bytes, &local_word, sizeof local_word);
      request.remote_address = remote_address;
      std::memcpy(&request.remote_key, &remote_word, sizeof remote_word);
      end = remote_address + length_bytes;
      at->next = at + 1;
      ++at;
      ++pair;
    } while (pair != behind && bytes_of(*pair).length_bytes == length_bytes);
    sum_bytes += length_bytes * static_cast<std::size_t>(pair - first);
  }
  ManyRecord& last = records[pairs.size() - 1];
  last.next = nullptr;
  ManyRecord& first = *records;
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
[[gnu::always_inline]] inline std::size_t ManyCall::post_run(Run& run, transport::Chain requests,
                                                             std::uint64_t bytes) noexcept {
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
    if (taken != 0) fill_like(run.records[posted], *run.records);
  }
}

/// Takes all operations of runs that have ended. Several that ended together have succeeded.
void ManyCall::collect_runs() noexcept {
  CompletionSink& sink = batch_->sink();
  for (std::size_t left = sink.ready(); left != 0;) {
    const CompletionSink::Run ended = sink.take_run();
    const ManyRecord* const record = ManyBatch::record_of(ended.first);
    Run& run = runs_[runs_[1].records == nullptr || record < runs_[1].records ? 0 : 1];
    if (!record->outcome.ok) [[unlikely]]
      fail(*run_region_, run.first_index + static_cast<std::size_t>(record - run.records), *record);
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
