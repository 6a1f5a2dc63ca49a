#include "search.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "packed.h"

namespace remora::volume_model {

namespace {

using Index = std::uint32_t;
constexpr Index kNoIndex = std::numeric_limits<Index>::max();

std::uint64_t hash_of(const Packed& packed) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const std::uint64_t word : packed) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32U;
  }
  return hash;
}

/// All states found so far, in the order in which they were found: also the queue of the search.
class StateStore {
 public:
  StateStore() : table_(std::size_t{1} << 16U, kNoIndex) {}

  /// False: it was there before.
  bool insert(const Packed& packed, Index parent) {
    if ((size_ + 1) * 10 > table_.size() * 7) grow();
    std::size_t slot = hash_of(packed) & (table_.size() - 1);
    while (table_[slot] != kNoIndex) {
      if (at(table_[slot]) == packed) return false;
      slot = (slot + 1) & (table_.size() - 1);
    }
    table_[slot] = static_cast<Index>(size_);
    if ((size_ & kInBlock) == 0) blocks_.push_back(std::make_unique<Block>());
    Entry& entry = (*blocks_.back())[size_ & kInBlock];
    entry.packed = packed;
    entry.parent = parent;
    ++size_;
    return true;
  }
  [[nodiscard]] const Packed& at(std::size_t index) const {
    return (*blocks_[index >> kBlockBits])[index & kInBlock].packed;
  }
  [[nodiscard]] Index parent(std::size_t index) const {
    return (*blocks_[index >> kBlockBits])[index & kInBlock].parent;
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kBlockBits = 16;
  static constexpr std::size_t kInBlock = (std::size_t{1} << kBlockBits) - 1;
  struct Entry {
    Packed packed;
    Index parent;
  };
  using Block = std::array<Entry, kInBlock + 1>;

  void grow() {
    std::vector<Index>(table_.size() * 2, kNoIndex).swap(table_);
    for (std::size_t index = 0; index < size_; ++index) {
      std::size_t slot = hash_of(at(index)) & (table_.size() - 1);
      while (table_[slot] != kNoIndex) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = static_cast<Index>(index);
    }
  }

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Index> table_;
  std::size_t size_ = 0;
};

/// The violation of the step, or of the state that it leads to.
Invariant violation_of(const Successor& successor, const Rules& rules) {
  const bool by_step = successor.violated != Invariant::kNone;
  const Invariant found = by_step ? successor.violated : judge_state(successor.state, rules);
  return rules.only == Invariant::kNone || rules.only == found ? found : Invariant::kNone;
}

/// Repeats the path to `last` with the members' names of the first state, then one step more that
/// violates `violated`.
Counterexample path_to(const StateStore& store, Index last, Invariant violated,
                       const Expander& expander, const Rules& rules) {
  std::vector<Index> path;
  for (Index index = last; index != kNoIndex; index = store.parent(index)) path.push_back(index);
  std::reverse(path.begin(), path.end());
  Counterexample found{violated, {}};
  State state = expander.first_state();
  Successors successors;
  for (std::size_t place = 1; place <= path.size(); ++place) {
    successors.clear();
    expander.expand(state, successors);
    for (Successor& successor : successors) {
      State next = successor.state;
      expander.forget_dead(next);
      const bool ends = place == path.size();
      if (ends ? violation_of(successor, rules) != violated : pack(next) != store.at(path[place]))
        continue;
      found.steps.push_back(successor);
      state = next;
      break;
    }
  }
  return found;
}

}  // namespace

SearchResult search(const Rules& rules, std::size_t states_max) {
  const Expander expander(rules);
  SearchResult result;
  StateStore store;
  State first = expander.first_state();
  expander.forget_dead(first);
  store.insert(pack(first), kNoIndex);
  Successors successors;
  successors.reserve(256);
  std::size_t level_end = 1;
  for (std::size_t index = 0; index < store.size() && store.size() < states_max; ++index) {
    if (index == level_end) {
      ++result.depth;
      level_end = store.size();
    }
    const State state = unpack(store.at(index));
    successors.clear();
    expander.expand(state, successors);
    result.steps += successors.size();
    for (Successor& successor : successors) {
      ++result.of_kind[static_cast<std::size_t>(successor.step.kind)];
      const Invariant violated = violation_of(successor, rules);
      if (violated != Invariant::kNone) {
        result.states = store.size();
        result.counterexample =
            path_to(store, static_cast<Index>(index), violated, expander, rules);
        return result;
      }
      expander.forget_dead(successor.state);
      store.insert(pack(successor.state), static_cast<Index>(index));
    }
  }
  result.states = store.size();
  result.complete = store.size() < states_max;
  return result;
}

}  // namespace remora::volume_model
