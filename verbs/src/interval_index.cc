#include "interval_index.h"

#include <utility>

#include "reader_epoch.h"

namespace remora::verbs::detail {

void RetiredList::add(std::unique_ptr<Retired> object) {
  object->epoch = ReaderEpoch::advance();
  list_.push_back(std::move(object));
  // Copies are large: many changes under one lock must not pile up.
  if (list_.size() % kCollectAt == 0) collect();
}

void RetiredList::collect() noexcept {
  const std::uint64_t oldest = ReaderEpoch::oldest();
  const auto kept = std::find_if(list_.begin(), list_.end(),
                                 [&](const auto& object) { return object->epoch >= oldest; });
  list_.erase(list_.begin(), kept);
}

IntervalIndex::~IntervalIndex() {
  const std::unique_ptr<Top> top{top_.load()};
  if (top == nullptr) return;
  for (Chunk* chunk : top->chunks) delete chunk;
}

void IntervalIndex::Chunk::push(Interval* item) noexcept {
  ranges[count++] = {item->begin, item->end, item};
}

std::size_t IntervalIndex::chunk_of(const Top& top, std::uintptr_t begin) noexcept {
  const auto after = std::upper_bound(top.begins.begin(), top.begins.end(), begin);
  return after == top.begins.begin() ? 0 : static_cast<std::size_t>(after - top.begins.begin() - 1);
}

void IntervalIndex::replace(std::size_t at, std::size_t removed,
                            std::vector<std::unique_ptr<Chunk>> added, RetiredList& retired) {
  Top* const old = top_.load();
  auto top = std::make_unique<Top>();
  if (old != nullptr) top->chunks = old->chunks;
  const auto where = top->chunks.begin() + static_cast<std::ptrdiff_t>(at);
  Chunk* const before = removed != 0 ? *where : nullptr;
  top->chunks.erase(where, where + static_cast<std::ptrdiff_t>(removed));
  for (std::size_t i = 0; i < added.size(); ++i)
    top->chunks.insert(top->chunks.begin() + static_cast<std::ptrdiff_t>(at + i), added[i].get());
  top->begins.reserve(top->chunks.size());
  top->ends.reserve(top->chunks.size());
  for (const Chunk* chunk : top->chunks) {
    top->begins.push_back(chunk->ranges[0].begin);
    top->ends.push_back(chunk->ranges[chunk->count - 1].end);
  }
  retired.reserve(2);
  for (auto& chunk : added) static_cast<void>(chunk.release());  // the top's now
  top_.store(top.release());
  if (old != nullptr) retired.add(std::unique_ptr<Retired>{old});
  if (before != nullptr) retired.add(std::unique_ptr<Retired>{before});
}

void IntervalIndex::insert(Interval& item, RetiredList& retired) {
  const Top* const top = top_.load();
  std::vector<std::unique_ptr<Chunk>> added;
  added.push_back(std::make_unique<Chunk>());
  if (top == nullptr || top->chunks.empty()) {
    added[0]->push(&item);
    return replace(0, 0, std::move(added), retired);
  }
  const std::size_t at = chunk_of(*top, item.begin);
  const Chunk& old = *top->chunks[at];
  bool placed = false;
  const auto push = [&](Interval* next) {
    // A full chunk becomes two; the halves leave room for neighbours.
    if (old.count == kChunkMax && added.size() == 1 && added[0]->count > kChunkMax / 2)
      added.push_back(std::make_unique<Chunk>());
    added.back()->push(next);
  };
  for (std::size_t i = 0; i < old.count; ++i) {
    if (!placed && item.begin < old.ranges[i].begin) {
      push(&item);
      placed = true;
    }
    push(old.ranges[i].item);
  }
  if (!placed) push(&item);
  replace(at, 1, std::move(added), retired);
}

void IntervalIndex::erase(const Interval& item, RetiredList& retired) {
  const Top* const top = top_.load();
  if (top == nullptr || top->chunks.empty()) return;
  const std::size_t at = chunk_of(*top, item.begin);
  const Chunk& old = *top->chunks[at];
  std::vector<std::unique_ptr<Chunk>> added;
  added.push_back(std::make_unique<Chunk>());
  for (std::size_t i = 0; i < old.count; ++i)
    if (old.ranges[i].item != &item) added[0]->push(old.ranges[i].item);
  if (added[0]->count == old.count) return;
  if (added[0]->count == 0) added.clear();
  replace(at, 1, std::move(added), retired);
}

}  // namespace remora::verbs::detail
