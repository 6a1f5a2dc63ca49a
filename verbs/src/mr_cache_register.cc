/// The pieces of a registration: one call, or many at a time.

#include <algorithm>
#include <atomic>
#include <functional>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "mr_cache_core.h"

namespace remora::verbs::detail {

Status MrCacheCore::register_pieces(std::uintptr_t begin, std::uintptr_t end, Access access,
                                    Deadline deadline, std::vector<MemoryRegion>& pieces) {
  std::vector<std::span<std::byte>> parts;
  for (std::uintptr_t at = begin; at < end;) {
    const std::uintptr_t next =
        end - begin <= piece_bytes_ ? end : std::min(end, (at / piece_bytes_ + 1) * piece_bytes_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses were pointers before they were cut.
    parts.emplace_back(reinterpret_cast<std::byte*>(at), next - at);
    at = next;
  }
  if (deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline)
    return Error{Code::kTimedOut, "MrCache::acquire"};
  Status done = register_in_parallel(parts, access, deadline, pieces);
  if (!done && done.error().code() == Code::kOutOfMemory) {
    // The device or the process is full, and what lies here idle is part of it.
    // As much of it goes as is wanted: what is left may be in use again soon.
    std::uint64_t freed_bytes = 0;
    while (freed_bytes < end - begin &&
           (deadline == Deadline::max() || std::chrono::steady_clock::now() < deadline)) {
      CachedRegistration* victim = nullptr;
      {
        const std::lock_guard lock{mutex_};
        victim = evict_one_locked();
      }
      if (victim == nullptr) break;
      freed_bytes += victim->end - victim->begin;
      finish(victim);
    }
    if (freed_bytes != 0) done = register_in_parallel(parts, access, deadline, pieces);
  }
  return done;
}

Status MrCacheCore::register_in_parallel(const std::vector<std::span<std::byte>>& parts,
                                         Access access, Deadline deadline,
                                         std::vector<MemoryRegion>& pieces) {
  std::vector<std::optional<Result<MemoryRegion>>> results(parts.size());
  std::atomic<bool> stop{false};
  const auto one = [&](std::size_t index) {
    if (stop.load(std::memory_order_relaxed)) return;
    if (deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline)
      results[index].emplace(Error{Code::kTimedOut, "MrCache::acquire"});
    else
      results[index].emplace(MemoryRegion::register_bytes(domain_, parts[index], access));
    if (!results[index]->ok()) stop.store(true, std::memory_order_relaxed);
  };
  if (parts.size() == 1) {
    one(0);
  } else {
    // An arena of its own: while it waits, this thread does no one else's work.
    tbb::task_arena arena;
    arena.execute([&] {
      tbb::parallel_for(std::size_t{0}, parts.size(), std::size_t{1}, std::ref(one),
                        tbb::simple_partitioner{});
    });
  }
  std::optional<Error> failed;
  pieces.reserve(parts.size());
  std::uint64_t made = 0;
  for (auto& result : results) {
    if (!result) continue;
    if (result->ok()) {
      ++made;
      pieces.push_back(std::move(**result));
    } else {
      count_failure(result->error());
      failed = result->error();
    }
  }
  {
    const std::lock_guard lock{mutex_};
    counters_.registrations += made;
  }
  if (!failed) return {};
  const Pinned stuck = deregister(pieces).stuck;
  const std::lock_guard lock{mutex_};
  counters_.pinned_bytes += stuck.bytes;  // beside the reservation, which goes back as a whole
  counters_.pinned_registrations += stuck.count;
  return *failed;
}

}  // namespace remora::verbs::detail
