#include "client/datapath/batch_order.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace remora::detail {

namespace {

/// may_gain() checks the first kGlance operations, which may have at most kMaxDistances distances
/// between remote and local addresses. find_groups() decides after kSample operations whether to
/// continue.
constexpr std::size_t kGlance = 4;
constexpr int kMaxDistances = 2;
constexpr std::size_t kSample = 16;
/// If the blocks of a group fill less than this part of their address range, too few are
/// neighbours.
constexpr std::uint64_t kSparseFrom = 4;
/// The layout of a key until make_keys(): the group in the bits from here on, the address below. An
/// address that is too long is cut, so its operation is sorted to a wrong place, which does no
/// harm.
constexpr unsigned kGroupShift = 56;
constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << kGroupShift) - 1;
/// One pass of the sort orders by this many bits, so that the counters of a pass fit into the L1
/// cache.
constexpr unsigned kDigitBits = 8;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
/// arrange_long() prefetches the record that is this many places ahead.
constexpr std::size_t kFetchAhead = 8;

std::uint64_t address_of(const std::byte* local) noexcept {
  return reinterpret_cast<std::uintptr_t>(local);
}

}  // namespace

BatchOrder::BatchOrder(const LaneDriver& lane, std::size_t depth)
    : needs_keys_{lane.needs_keys()},
      bytes_max_{std::min(kMaxJoinedBytes, lane.request_bytes_max()) / 2} {
  const LaneDriver::NeighbourGain gain = lane.neighbour_gain();
  bytes_least_ = gain.length_bytes_least;
  const std::size_t count = std::min(depth, gain.max_operations);
  if (count < kFromOperations) return;
  places_.resize(count);
  sorted_.resize(count);
}

void BatchOrder::arrange_long(OperationList& operations) noexcept {
  if (!may_gain(operations) || !find_groups(operations)) return;
  const std::size_t count = operations.count;
  const Place* const places = sort(count, make_keys(count));
  operations = {};
  const OperationRecord* before = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kFetchAhead < count) __builtin_prefetch(places[i + kFetchAhead].operation, 1);
    OperationRecord& operation = *places[i].operation;
    operation.follows = before != nullptr && may_follow(*before, operation);
    operations.append(operation);
    before = &operation;
  }
}

/// Checks the first kGlance operations; most batches need no more. True if the operations have few
/// distances between remote and local addresses, are long enough and, if there is only one
/// distance, lie close together.
bool BatchOrder::may_gain(const OperationList& operations) const noexcept {
  std::uint64_t distances = 0;  // hashed
  std::uint64_t lowest = ~std::uint64_t{0};
  std::uint64_t highest = 0;
  std::uint64_t sum_bytes = 0;
  const OperationRecord* at = operations.first;
  for (std::size_t i = 0; i < kGlance; ++i, at = at->next) {
    const transport::WorkRequest& request = at->request;
    const std::uint64_t distance = address_of(request.local) - request.remote_address;
    distances |= std::uint64_t{1} << (distance * 0x9e3779b97f4a7c15U >> 58U);
    lowest = std::min(lowest, request.remote_address);
    highest = std::max(highest, request.remote_address);
    sum_bytes += request.length_bytes;
  }
  if (sum_bytes < kGlance * bytes_least_) return false;
  // Each step removes one distance. std::popcount() is a call, unless the program is compiled for
  // processors that have an instruction for it.
  distances &= distances - 1;
  if (distances == 0)
    return highest - lowest <= sum_bytes * operations.count / kGlance * kSparseFrom;
  static_assert(kMaxDistances == 2, "one more distance may be left");
  return (distances & (distances - 1)) == 0;
}

bool BatchOrder::joinable(const OperationRecord& operation) const noexcept {
  return operation.whole && transport::is_transfer(operation.request.opcode) &&
         operation.request.length_bytes <= bytes_max_ &&
         (operation.memory != nullptr || !needs_keys_);
}

/// The group of a joinable operation; kMaxGroups if there are too many groups.
std::size_t BatchOrder::group_of(const transport::WorkRequest& request, const LocalMemory* memory,
                                 std::size_t likely) noexcept {
  const std::uint64_t distance = address_of(request.local) - request.remote_address;
  const auto fits = [&](const Group& group) {
    return group.distance == distance && group.memory == memory &&
           group.remote_key == request.remote_key && group.opcode == request.opcode;
  };
  if (likely < group_count_ && fits(groups_[likely])) return likely;
  for (std::size_t i = 0; i < group_count_; ++i)
    if (fits(groups_[i])) return i;
  if (group_count_ == kMaxGroups) return kMaxGroups;
  groups_[group_count_] = {.distance = distance,
                           .memory = memory,
                           .remote_key = request.remote_key,
                           .opcode = request.opcode,
                           .lowest = request.remote_address & kAddressMask};
  return group_count_++;
}

/// Whether the blocks of a group lie so close together that many are neighbours. `seen` of `count`
/// operations are known; the others are assumed to be similar.
bool BatchOrder::may_have_neighbours(const Group& group, std::size_t seen,
                                     std::size_t count) noexcept {
  // Both products fit into 64 bits: at most 2^16 operations of 2^15 bytes.
  return group.count > 1 &&
         group.end - group.lowest <= group.sum_bytes * count / seen * kSparseFrom;
}

/// Whether at least half of the operations are in groups that may have neighbours.
bool BatchOrder::gains_by_order(std::size_t seen, std::size_t count) const noexcept {
  std::size_t found = 0;
  for (const Group& group : std::span{groups_}.first(group_count_))
    if (may_have_neighbours(group, seen, count)) found += group.count;
  return 2 * found >= seen;
}

/// Fills places_ and groups_. Returns false as soon as it knows that sorting would gain nothing.
bool BatchOrder::find_groups(const OperationList& operations) noexcept {
  group_count_ = 0;
  std::size_t seen = 0;
  std::size_t group = 0;
  std::size_t steps_back = 0;
  std::size_t gaps = 0;
  std::uint64_t before = 0;
  std::uint64_t end_before = 0;
  for (OperationRecord* at = operations.first; at != nullptr; at = at->next) {
    const transport::WorkRequest& request = at->request;
    std::uint64_t key = 0;
    group = joinable(*at) ? group_of(request, at->memory, group) : kMaxGroups;
    if (group == kMaxGroups) {
      key = std::uint64_t{kMaxGroups} << kGroupShift;
    } else {
      const std::uint64_t address = request.remote_address & kAddressMask;
      Group& found = groups_[group];
      ++found.count;
      found.differing |= address ^ found.lowest;
      found.lowest = std::min(found.lowest, address);
      found.end = std::max(found.end, address + request.length_bytes);
      found.sum_bytes += request.length_bytes;
      key = (std::uint64_t{group} << kGroupShift) | address;
      gaps += key == end_before ? 0 : 1;
      end_before = key + request.length_bytes;
    }
    steps_back += key < before ? 1 : 0;
    before = key;
    places_[seen++] = {.key = key, .operation = at};
    // The first operations of a batch that is one stream of blocks in order have at most one gap.
    if (seen == kSample && (gaps <= 1 || !gains_by_order(kSample, operations.count))) return false;
  }
  return steps_back != 0 && gains_by_order(seen, seen);
}

/// Makes the keys as short as possible; returns their length in bits.
unsigned BatchOrder::make_keys(std::size_t count) noexcept {
  std::uint64_t differing = 0;
  std::uint64_t span_bytes = 0;
  for (const Group& group : std::span{groups_}.first(group_count_)) {
    if (!may_have_neighbours(group, count, count)) continue;
    differing |= group.differing;
    span_bytes = std::max(span_bytes, group.end - group.lowest);
  }
  // Blocks of one size begin at multiples of that size: low bits in which no addresses differ are
  // cut off.
  const auto shift = differing == 0 ? 0U : static_cast<unsigned>(std::countr_zero(differing));
  const auto bits = static_cast<unsigned>(std::bit_width(span_bytes >> shift));
  // Operations of groups without neighbours keep their order, behind the others.
  std::array<std::uint64_t, kMaxGroups + 1> ranks{};
  std::array<bool, kMaxGroups + 1> sorted{};
  std::uint64_t rank = 0;
  std::size_t joinable = 0;
  for (std::size_t i = 0; i < group_count_; ++i) {
    if (!may_have_neighbours(groups_[i], count, count)) continue;
    sorted[i] = true;
    ranks[i] = rank++;
    joinable += groups_[i].count;
  }
  const std::uint64_t last = joinable == count ? rank - 1 : rank;
  for (Place& place : std::span{places_}.first(count)) {
    const auto group = static_cast<std::size_t>(place.key >> kGroupShift);
    place.key = sorted[group] ? (ranks[group] << bits) |
                                    (((place.key & kAddressMask) - groups_[group].lowest) >> shift)
                              : last << bits;
  }
  return bits + static_cast<unsigned>(std::bit_width(last));
}

/// Sorts stably by the lowest `bits` of the keys, digit by digit; returns the array with the
/// result. A sort that compares keys takes three times as long for a thousand operations, and with
/// two threads of oneTBB twice as long. Measured by tests/bench/bench_batch_order.
const BatchOrder::Place* BatchOrder::sort(std::size_t count, unsigned bits) noexcept {
  Place* from = places_.data();
  Place* to = sorted_.data();
  for (unsigned shift = 0; shift < bits; shift += kDigitBits) {
    std::array<std::uint32_t, kDigits> begins{};
    const auto digit = [shift](const Place& place) { return (place.key >> shift) % kDigits; };
    for (std::size_t i = 0; i < count; ++i) ++begins[digit(from[i])];
    std::uint32_t begin = 0;
    for (std::uint32_t& each : begins) begin += std::exchange(each, begin);
    for (std::size_t i = 0; i < count; ++i) to[begins[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

}  // namespace remora::detail
