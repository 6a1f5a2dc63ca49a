// The block in which a thread, or an object, records: a thread's block is found by a thread-local
// look-up, and released when the thread ends.

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <remora/assert.h>
#include <remora/owned.h>

#include "registry_state.h"

namespace remora::metrics {
namespace {

struct Attachment {
  std::uint64_t registry_id = 0;  // 0 is no registry
  std::uint64_t* cells = nullptr;
};

// The registry that was used last. Trivial, so that it can still be read while the thread's other
// thread-local objects are being destroyed.
constinit thread_local Attachment t_last;
constinit thread_local bool t_ending = false;

// Every registry in which the thread has recorded. A destroyed one is noticed by its weak pointer;
// ids are not reused, so a stale entry never matches.
class ThreadBlocks {
 public:
  ThreadBlocks() = default;
  ThreadBlocks(const ThreadBlocks&) = delete;
  ThreadBlocks& operator=(const ThreadBlocks&) = delete;
  ~ThreadBlocks() {
    t_ending = true;
    t_last = {};
    // In a child of fork(2) a thread of the parent may have held the lock.
    for (const Entry& entry : entries_) {
      if (entry.made_in != remora::detail::this_process()) continue;
      if (const auto state = entry.state.lock()) state->release_block(entry.attachment.cells);
    }
  }

  std::uint64_t* find(std::uint64_t registry_id) const noexcept {
    for (const Entry& entry : entries_)
      if (entry.attachment.registry_id == registry_id) return entry.attachment.cells;
    return nullptr;
  }
  void remember(const std::shared_ptr<RegistryState>& state, std::uint64_t* cells) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.state.expired(); });
    entries_.push_back({state, {state->id, cells}, remora::detail::made_here()});
  }

 private:
  struct Entry {
    std::weak_ptr<RegistryState> state;
    Attachment attachment;
    std::uint32_t made_in;
  };
  std::vector<Entry> entries_;
};

thread_local ThreadBlocks t_blocks;

std::uint64_t* find_or_acquire(const std::shared_ptr<RegistryState>& state) noexcept {
  // For a thread-local object that records in its destructor, after t_blocks is destroyed: it keeps
  // the block until the registry is destroyed; its counts are still read.
  if (t_ending) return state->acquire_block();
  if (std::uint64_t* const known = t_blocks.find(state->id)) return known;
  std::uint64_t* const cells = state->acquire_block();
  try {
    t_blocks.remember(state, cells);
  } catch (...) {  // no memory for the entry: never released, still counted
  }
  return cells;
}

// A separate function, so that a successful look-up saves no registers.
[[gnu::noinline, gnu::cold]] std::uint64_t* attach(
    const std::shared_ptr<RegistryState>& state) noexcept {
  std::uint64_t* const cells = find_or_acquire(state);
  t_last = {state->id, cells};
  return cells;
}

}  // namespace

Recorder Registry::recorder() const noexcept {
  const Attachment last = t_last;
  if (last.registry_id == state_->id) [[likely]]
    return Recorder{last.cells};
  return Recorder{attach(state_)};
}

namespace {
// Cells that are never read, shared by all objects without a registry.
std::uint64_t* nowhere() noexcept {
  static std::array<std::uint64_t, RegistryState::kScratchCells> cells{};
  return cells.data();
}
}  // namespace

OwnedCells::OwnedCells() noexcept : cells_{nowhere()} {}
OwnedCells::OwnedCells(std::shared_ptr<RegistryState> state, std::uint64_t* cells) noexcept
    : state_{std::move(state)}, cells_{cells} {}
OwnedCells::OwnedCells(OwnedCells&& other) noexcept
    : state_{std::move(other.state_)}, cells_{std::exchange(other.cells_, nowhere())} {}
OwnedCells& OwnedCells::operator=(OwnedCells&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  state_ = std::move(other.state_);
  cells_ = std::exchange(other.cells_, nowhere());
  return *this;
}
OwnedCells::~OwnedCells() { give_back(); }
void OwnedCells::give_back() noexcept {
  if (state_ != nullptr) state_->release_block(cells_);
  state_.reset();
}

OwnedCells Registry::own_cells() const noexcept {
  return OwnedCells{state_, state_->acquire_block()};
}

std::uint64_t* RegistryState::acquire_block() noexcept {
  const detail::MutexLock lock{mutex};
  if (!free_blocks.empty()) {
    std::uint64_t* const cells = free_blocks.back();
    free_blocks.pop_back();
    return cells;
  }
  try {
    free_blocks.reserve(blocks.size());  // so that release_block never allocates
    Block block{cells_per_block};
    if (block.cells() == nullptr) return blocks.front().cells();
    std::uint64_t* const cells = block.cells();
    blocks.push_back(std::move(block));
    return cells;
  } catch (...) {
    return blocks.front().cells();
  }
}

void RegistryState::release_block(std::uint64_t* cells) noexcept {
  const detail::MutexLock lock{mutex};
  if (cells == blocks.front().cells()) return;
  REMORA_ASSERT(free_blocks.size() < blocks.size() - 1, "a block is given back once");
  free_blocks.push_back(cells);
}

}  // namespace remora::metrics
