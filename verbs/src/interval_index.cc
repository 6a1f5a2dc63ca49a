#include "interval_index.h"

#include <bit>
#include <new>
#include <utility>

#include "reader_epoch.h"

namespace remora::verbs::detail {

RetiredList::~RetiredList() {
  while (first_ != nullptr) destroy_first();
}

void RetiredList::add(Retired& object) noexcept {
  object.epoch_ = ReaderEpoch::advance();
  object.next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = &object;
  last_ = &object;
  // Copies are large: they must not accumulate during many changes under one lock.
  if (++count_ % kCollectAt == 0) collect();
}

void RetiredList::destroy_first() noexcept {
  Retired* const object = std::exchange(first_, first_->next_);
  if (first_ == nullptr) last_ = nullptr;
  --count_;
  object->destroy();
}

void RetiredList::collect() noexcept {
  const std::uint64_t oldest = ReaderEpoch::oldest();
  while (first_ != nullptr && first_->epoch_ < oldest) destroy_first();
}

IntervalIndex::~IntervalIndex() {
  const std::unique_ptr<Top> top{top_.load()};
  if (top == nullptr) return;
  for (const Entry& entry : top->entries) delete entry.chunk;
}

IntervalIndex::Chunk::Chunk() noexcept {
  firsts.fill(UINTPTR_MAX);
  for (Group& group : groups) {
    group.begins.fill(UINTPTR_MAX);
    group.ends.fill(0);
    for (auto& item : group.items) item.store(nullptr, std::memory_order_relaxed);
  }
}

void IntervalIndex::Chunk::push(Interval& item) noexcept {
  Group& group = groups[count / kGroupRanges];
  if (count % kGroupRanges == 0) {
    firsts[count / kGroupRanges] = item.begin;
    half = std::bit_ceil(count / kGroupRanges + 1) / 2;
  }
  group.begins[count % kGroupRanges] = item.begin;
  group.ends[count % kGroupRanges] = item.end;
  group.items[count % kGroupRanges].store(&item, std::memory_order_relaxed);
  ++count;
}

IntervalIndex::Place IntervalIndex::following(const Top& top, Place at) noexcept {
  return at.range + 1 < top.entries[at.chunk].chunk->count ? Place{at.chunk, at.range + 1}
                                                           : Place{at.chunk + 1, 0};
}

Interval* IntervalIndex::before(const Top& top, Place at) noexcept {
  for (;;) {
    if (at.range != 0)
      --at.range;
    else if (at.chunk == 0)
      return nullptr;
    else
      at = {at.chunk - 1, top.entries[at.chunk - 1].chunk->count - 1};
    if (Interval* const item = top.entries[at.chunk].chunk->item(at.range)) return item;
  }
}

IntervalIndex::Place IntervalIndex::first_touching(const Top& top, std::uintptr_t begin) noexcept {
  const std::size_t chunks = count_from(top, begin);
  if (chunks == 0) return {0, 0};
  // From the last range that starts at or before `begin` back to the first that still reaches it.
  Place at{chunks - 1, 0};
  at.range = top.entries[at.chunk].chunk->last_from(begin);
  for (;;) {
    const Interval* const item = top.entries[at.chunk].chunk->item(at.range);
    if (item != nullptr && item->end <= begin) return following(top, at);
    if (at.range != 0)
      --at.range;
    else if (at.chunk == 0)
      return at;
    else
      at = {at.chunk - 1, top.entries[at.chunk - 1].chunk->count - 1};
  }
}

std::size_t IntervalIndex::live_of(const Chunk& chunk, Live& live) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < chunk.count; ++i)
    if (Interval* const item = chunk.item(i)) live[count++] = item;
  return count;
}

void IntervalIndex::replace(std::size_t at, std::size_t removed, std::span<Interval* const> live,
                            RetiredList& retired) {
  // A full chunk becomes two; the halves leave room for neighbours.
  const std::size_t front = live.size() > kChunkMax ? live.size() / 2 + 1 : live.size();
  std::array<std::unique_ptr<Chunk>, 2> added;
  for (std::size_t i = 0; i < live.size(); ++i) {
    auto& chunk = added[i < front ? 0 : 1];
    if (chunk == nullptr) chunk = std::make_unique<Chunk>();
    chunk->push(*live[i]);
  }
  Top* const old = top_.load();
  auto top = std::make_unique<Top>();
  const std::span<const Entry> entries =
      old != nullptr ? std::span<const Entry>{old->entries} : std::span<const Entry>{};
  top->entries.reserve(entries.size() - removed + added.size());
  const auto copy = [&](std::span<const Entry> some) {
    top->entries.insert(top->entries.end(), some.begin(), some.end());
  };
  copy(entries.first(at));
  for (auto& chunk : added)
    if (chunk != nullptr) {
      const std::uintptr_t begin = chunk->firsts[0];
      top->entries.push_back({begin, chunk.release()});  // has room, so the top owns the chunk now
    }
  copy(entries.subspan(at + removed));
  top_.store(top.release());
  if (old == nullptr) return;
  if (removed != 0) retired.add(*old->entries[at].chunk);
  retired.add(*old);
}

void IntervalIndex::insert(Interval& item, RetiredList& retired) {
  const Top* const top = top_.load();
  Live live;
  if (top == nullptr || top->entries.empty()) {
    live[0] = &item;
    return replace(0, 0, std::span{live}.first(1), retired);
  }
  const std::size_t at = std::max<std::size_t>(count_from(*top, item.begin), 1) - 1;
  std::size_t count = live_of(*top->entries[at].chunk, live);
  auto* const end = live.data() + count;
  auto* const where = std::upper_bound(
      live.data(), end, item.begin,
      [](std::uintptr_t begin, const Interval* one) { return begin < one->begin; });
  std::move_backward(where, end, end + 1);
  *where = &item;
  replace(at, 1, std::span{live}.first(++count), retired);
}

void IntervalIndex::erase(const Interval& item, RetiredList& retired) noexcept {
  const Top* const top = top_.load();
  if (top == nullptr) return;
  const std::size_t chunks = count_from(*top, item.begin);
  if (chunks == 0) return;
  Chunk& chunk = *top->entries[chunks - 1].chunk;
  const std::size_t place = chunk.last_from(item.begin);
  if (chunk.item(place) != &item) return;
  Live live;
  const std::size_t count = live_of(chunk, live);
  auto* const end = live.data() + count;
  static_cast<void>(std::remove(live.data(), end, &item));
  try {
    replace(chunks - 1, 1, std::span{live}.first(count - 1), retired);
  } catch (const std::bad_alloc&) {
    chunk.groups[place / kGroupRanges].items[place % kGroupRanges].store(nullptr);
  }
}

}  // namespace remora::verbs::detail
