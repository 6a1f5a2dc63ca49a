#include "packed.h"

#include <algorithm>
#include <utility>

namespace remora::volume_model {

namespace {

__extension__ using Wide = unsigned __int128;

/// Both directions of one list of fields, so that they cannot differ. At most 64 bits.
class Put {
 public:
  template <class T>
  [[gnu::always_inline]] void field(const T& value, unsigned width) noexcept {
    bits_ |= static_cast<std::uint64_t>(value) << used_;
    used_ += width;
  }
  [[nodiscard]] std::uint64_t bits() const noexcept { return bits_; }

 private:
  std::uint64_t bits_ = 0;
  unsigned used_ = 0;
};

class Take {
 public:
  explicit Take(std::uint64_t bits) noexcept : bits_(bits) {}
  template <class T>
  [[gnu::always_inline]] void field(T& value, unsigned width) noexcept {
    value = static_cast<T>(static_cast<std::uint8_t>(bits_) & ((1U << width) - 1U));
    bits_ >>= width;
  }

 private:
  std::uint64_t bits_;
};

template <class Archive, class AnyMember>
void fields_of_member(Archive& archive, AnyMember& member) {
  archive.field(member.role, 2);
  archive.field(member.exists, 1);
  for (auto& value : member.data) archive.field(value, 2);
  archive.field(member.bits, 2);
  archive.field(member.ahead, 1);
  archive.field(member.removed_long, 1);
  archive.field(member.late_role, 2);
  archive.field(member.snapshot_role, 2);
  archive.field(member.reader_primary, 1);
  archive.field(member.reader_grant, 1);
  for (auto& side : member.side) {
    archive.field(side.role, 2);
    archive.field(side.grant, 2);
    for (auto& value : side.data) archive.field(value, 3);
    archive.field(side.word, 3);
    archive.field(side.done, 1);
    archive.field(side.old_primary, 1);
    archive.field(side.before_entry, 1);
  }
}
constexpr unsigned kMemberBits = 49;
constexpr unsigned kSpareBits = 64 - kMemberBits;

template <class Archive, class AnyWriter>
void fields_of_writer(Archive& archive, AnyWriter& writer) {
  archive.field(writer.w, 2);
  archive.field(writer.phase, 3);
  archive.field(writer.work, 3);
  archive.field(writer.stage, 2);
  archive.field(writer.zone, 1);
  archive.field(writer.value, 2);
  archive.field(writer.current, 1);
  archive.field(writer.promoting, 1);
  archive.field(writer.waited, 1);
  archive.field(writer.frozen, 1);
  archive.field(writer.fresh, 1);
  archive.field(writer.headers, 1);
  archive.field(writer.newer, 1);
  archive.field(writer.marked, 2);
  archive.field(writer.dirty, 2);
  archive.field(writer.unresolved, 2);
  archive.field(writer.copied, 2);
  archive.field(writer.bits_copied, 1);
  archive.field(writer.spoiled, 1);
}

constexpr unsigned kWriterBits = 30;

/// All but members and writers: 31 bits.
template <class Archive, class AnyState>
void fields_of_rest(Archive& archive, AnyState& state) {
  archive.field(state.store.w, 2);
  archive.field(state.store.promoting, 1);
  archive.field(state.store.foreign, 1);
  archive.field(state.store.snapshot, 2);
  archive.field(state.store.snapshot_w, 2);
  archive.field(state.store.snapshot_promoting, 1);
  archive.field(state.reader_fresh, 1);
  archive.field(state.late.valid, 1);
  archive.field(state.late.promoting, 1);
  archive.field(state.late.current, 1);
  archive.field(state.late.author, 1);
  for (auto& value : state.acked) archive.field(value, 2);
  for (auto& value : state.seen) archive.field(value, 2);
  archive.field(state.acting, 2);
  archive.field(state.written, 2);
  archive.field(state.crashes_left, 2);
  archive.field(state.unknown_left, 1);
  archive.field(state.rebuilds_left, 2);
}

constexpr unsigned kRestBits = 31;
static_assert(2 * kWriterBits + kRestBits <= 64 + kMembers * kSpareBits);

Packed pack_as_it_is(const State& state) noexcept {
  Packed packed{};
  for (int m = 0; m < kMembers; ++m) {
    Put put;
    fields_of_member(put, state.member[m]);
    packed[m] = static_cast<std::uint64_t>(put.bits());
  }
  if (packed[0] > packed[1]) std::swap(packed[0], packed[1]);
  if (packed[1] > packed[2]) std::swap(packed[1], packed[2]);
  if (packed[0] > packed[1]) std::swap(packed[0], packed[1]);
  Wide rest = 0;
  for (const Writer& writer : state.writer) {
    Put put;
    fields_of_writer(put, writer);
    rest = (rest << kWriterBits) | put.bits();
  }
  Put put;
  fields_of_rest(put, state);
  rest = (rest << kRestBits) | put.bits();
  packed[3] = static_cast<std::uint64_t>(rest);
  rest >>= 64U;
  for (int m = 0; m < kMembers; ++m) {
    packed[m] |= static_cast<std::uint64_t>(rest) << kMemberBits;
    rest >>= kSpareBits;
  }
  return packed;
}

ZoneSet swapped(ZoneSet set) { return static_cast<ZoneSet>(((set & 1U) << 1U) | (set >> 1U)); }

/// A number that depends on a zone and not on the members' names. Where the zones' numbers differ,
/// the zone with the smaller one is the first.
std::uint32_t weight(const State& state, int zone) {
  const ZoneSet bit = zone_bit(zone);
  std::uint32_t sum = state.acked[zone] + 4U * state.seen[zone];
  for (const Member& member : state.member) {
    sum += 16U * member.data[zone] + ((member.bits & bit) != 0 ? 256U : 0U);
    sum += 4096U * member.side[0].data[zone] + 65536U * member.side[1].data[zone];
  }
  for (const Writer& writer : state.writer) {
    if ((writer.marked & bit) != 0) sum += 1U << 20U;
    if ((writer.dirty & bit) != 0) sum += 1U << 22U;
    if ((writer.unresolved & bit) != 0) sum += 1U << 24U;
    if ((writer.copied & bit) != 0) sum += 1U << 26U;
    if (has_zone(writer.work) && writer.zone == zone) sum += 1U << 28U;
  }
  return sum;
}

/// The same state with the names of the zones exchanged.
void swap_zones(State& state) {
  for (Member& member : state.member) {
    std::swap(member.data[0], member.data[1]);
    member.bits = swapped(member.bits);
    for (Side& side : member.side) {
      std::swap(side.data[0], side.data[1]);
      if (side.word != 0)
        side.word = static_cast<std::uint8_t>(1 + swapped(static_cast<ZoneSet>(side.word - 1)));
    }
  }
  for (Writer& writer : state.writer) {
    writer.zone ^= static_cast<std::uint8_t>(has_zone(writer.work) ? 1U : 0U);
    for (ZoneSet* set : {&writer.marked, &writer.dirty, &writer.unresolved, &writer.copied})
      *set = swapped(*set);
  }
  std::swap(state.acked[0], state.acked[1]);
  std::swap(state.seen[0], state.seen[1]);
}

}  // namespace

Packed pack(const State& state) noexcept {
  const std::uint32_t of_first = weight(state, 0);
  const std::uint32_t of_second = weight(state, 1);
  if (of_first < of_second) return pack_as_it_is(state);
  State other = state;
  swap_zones(other);
  const Packed swapped = pack_as_it_is(other);
  return of_first > of_second ? swapped : std::min(swapped, pack_as_it_is(state));
}

State unpack(const Packed& packed) noexcept {
  State state;
  Wide rest = 0;
  for (int m = kMembers - 1; m >= 0; --m) {
    Take take(packed[m] & ((std::uint64_t{1} << kMemberBits) - 1));
    fields_of_member(take, state.member[m]);
    rest = (rest << kSpareBits) | (packed[m] >> kMemberBits);
  }
  rest = (rest << 64U) | packed[3];
  Take take(static_cast<std::uint64_t>(rest) & ((std::uint64_t{1} << kRestBits) - 1));
  fields_of_rest(take, state);
  rest >>= kRestBits;
  for (int x = kWriters - 1; x >= 0; --x) {
    Take of_writer(static_cast<std::uint64_t>(rest) & ((std::uint64_t{1} << kWriterBits) - 1));
    fields_of_writer(of_writer, state.writer[x]);
    rest >>= kWriterBits;
  }
  return state;
}

}  // namespace remora::volume_model
