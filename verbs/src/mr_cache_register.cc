/// The pieces of a registration: one call, or many at a time.

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include <remora/start_thread.h>

#include "mr_cache_core.h"

namespace remora::verbs::detail {
namespace {

/// Threads besides the caller's that register parts of one buffer.
constexpr std::size_t kHelpersMax = 15;

/// Calls `one` for 0 … count - 1 in any order: by this thread, and by others as far as they are to
/// be had. They live for this call alone, since to pin a part takes much longer than to start one.
template <typename One>
void for_each(std::size_t count, const One& one) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) one(i);
  };
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  const std::size_t wanted = std::min({kHelpersMax, processors - 1, count - 1});
  helpers.reserve(wanted);
  while (helpers.size() < wanted) {
    auto helper = remora::detail::start_thread("remora-register", work);
    if (!helper) break;
    helpers.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

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
        const remora::detail::MutexLock lock{mutex_};
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
  for_each(parts.size(), [&](std::size_t index) noexcept {
    if (stop.load(std::memory_order_relaxed)) return;
    if (deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline)
      results[index].emplace(Error{Code::kTimedOut, "MrCache::acquire"});
    else
      try {
        results[index].emplace(MemoryRegion::register_bytes(domain_, parts[index], access));
      } catch (const std::exception&) {
        results[index].emplace(Error{Code::kOutOfMemory, "MrCache::acquire"});
      }
    if (!results[index]->ok()) stop.store(true, std::memory_order_relaxed);
  });
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
    const remora::detail::MutexLock lock{mutex_};
    counters_.registrations += made;
  }
  if (!failed) return {};
  const Pinned stuck = deregister(pieces).stuck;
  const remora::detail::MutexLock lock{mutex_};
  counters_.pinned_bytes += stuck.bytes;  // beside the reservation, which goes back as a whole
  counters_.pinned_registrations += stuck.count;
  return *failed;
}

}  // namespace remora::verbs::detail
