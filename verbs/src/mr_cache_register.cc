/// Makes registrations: within the budget, in one call or in many at a time, and puts them into the
/// index.

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <unistd.h>

#include <remora/assert.h>
#include <remora/start_thread.h>
#include <remora/verbs/teardown.h>

#include "mr_cache_core.h"

namespace remora::verbs::detail {
namespace {

using Registration = CachedRegistration;

constexpr Access kRemoteRights =
    Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic | Access::kWindowBind;

std::uintptr_t page_bytes() noexcept {
  static const auto s_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return s_bytes;
}
std::uintptr_t page_floor(std::uintptr_t address) noexcept { return address & ~(page_bytes() - 1); }
std::uintptr_t page_ceiling(std::uintptr_t address) noexcept {
  return page_floor(address + page_bytes() - 1);
}

/// The most threads, besides the caller's, that register parts of one buffer.
constexpr std::size_t kHelpersMax = 15;

/// Calls `one` for 0 … count - 1 in any order: on this thread, and on others if they can be
/// started. They exist for this call alone, since pinning a part takes much longer than starting a
/// thread.
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
    auto helper = remora::detail::start_thread("remora-pin", work);
    if (!helper) break;
    helpers.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

/// Room in the budgets, returned unless it was used.
struct MrCacheCore::Reservation {
  explicit Reservation(MrCacheCore& owner) noexcept : core{owner} {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (held.bytes == 0) return;
    const remora::detail::MutexLock lock{core.mutex_};
    REMORA_ASSERT(core.counters_.pinned_bytes >= held.bytes &&
                      core.counters_.pinned_registrations >= held.count,
                  "what a reservation holds is counted as pinned");
    core.counters_.pinned_bytes -= held.bytes;
    core.counters_.pinned_registrations -= held.count;
  }
  MrCacheCore& core;
  Pinned held;
};

Result<MrLease> MrCacheCore::register_new(std::span<std::byte> bytes, Access access,
                                          Deadline deadline, bool keep) {
  auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  auto end = begin + bytes.size();
  const std::uintptr_t first_page = page_floor(begin);
  const std::uintptr_t last_page = page_ceiling(end);
  if (keep && (access & kRemoteRights) == Access::kNone) {
    begin = first_page;
    end = last_page;
  }
  std::uint64_t invalidations = 0;
  {
    const remora::detail::MutexLock lock{mutex_};
    invalidations = invalidations_;
  }
  const std::uint64_t generation = monitor_ != nullptr ? monitor_->generation() : 0;
  if (monitor_ != nullptr)
    keep = keep && (generation & 1U) == 0 && monitor_->watch(first_page, last_page) &&
           !monitor_->being_removed(first_page, last_page);
  if (!keep && options_.unkept == Unkept::kRefuse) {
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.refused;
    return Error{Code::kUnsupported, "MrCache::acquire"}.with_subject(
        "memory whose changes are not noticed");
  }
  auto made = Registration::make(lines_);
  made->begin = begin;
  made->end = end;
  Reservation reservation{*this};
  const std::uint64_t pieces =
      end - begin <= piece_bytes_ ? 1 : (end - 1) / piece_bytes_ - begin / piece_bytes_ + 1;
  const Pinned wanted{last_page - first_page, pieces};
  if (const Status room = reserve(wanted, deadline, reservation); !room) return room.error();
  if (const Status done = register_pieces(begin, end, access, deadline, made->rest->pieces); !done)
    return done.error();
  made->rest->core = shared_from_this();
  made->single = made->rest->pieces.size() == 1;
  if (made->single) {
    made->lkey = made->rest->pieces[0].lkey();
    made->rkey = made->rest->pieces[0].rkey();
  }
  reservation.held = {};  // now owned by the registration
  {
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.misses;
  }
  Registration* const registration = made.release();
  MrLease lease{registration, bytes};
  if (!keep || !publish(*registration, access, invalidations)) {
    registration->state.fetch_or(Registration::kDead | Registration::kUnlinked);
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.unkept;
  } else {
    settle(*registration, generation);
  }
  return lease;
}

Status MrCacheCore::reserve(Pinned wanted, Deadline deadline, Reservation& reservation) {
  const auto [bytes, count] = wanted;
  const Error limit{Code::kLimitExceeded, "MrCache::acquire"};
  if (bytes > options_.bytes_max)
    return limit.with_subject("bytes_max").with_limit(bytes, options_.bytes_max);
  if (count > options_.registrations_max)
    return limit.with_subject("registrations_max").with_limit(count, options_.registrations_max);
  const Error held{Code::kOutOfMemory, "MrCache::acquire"};
  for (;;) {
    Registration* victim = nullptr;
    {
      remora::detail::MutexLock lock{mutex_};
      const std::uint64_t free_bytes =
          options_.bytes_max - std::min(options_.bytes_max, counters_.pinned_bytes);
      const std::uint64_t free_count =
          options_.registrations_max -
          std::min(options_.registrations_max, counters_.pinned_registrations);
      if (bytes <= free_bytes && count <= free_count) {
        counters_.pinned_bytes += bytes;
        counters_.pinned_registrations += count;
        reservation.held = wanted;
        return {};
      }
      victim = evict_one_locked();
      if (victim == nullptr && finishing_ > 0) {
        if (finished_.wait_until(lock, deadline) == std::cv_status::timeout)
          return Error{Code::kTimedOut, "MrCache::acquire"};
        continue;
      }
      if (victim == nullptr &&
          dead_.load() != nullptr) {  // released, not yet finished by the reaper
        lock.unlock();
        collect_dead();
        continue;
      }
      if (victim == nullptr)
        return bytes > free_bytes
                   ? held.with_subject("bytes_max, leased").with_limit(bytes, free_bytes)
                   : held.with_subject("registrations_max, leased").with_limit(count, free_count);
    }
    finish(victim);
    if (deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline)
      return Error{Code::kTimedOut, "MrCache::acquire"};
  }
}

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
    // The device or the process has no room, and idle registrations of the cache use a part of it.
    // Evicts as many bytes as are needed: the others may soon be used again.
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
  counters_.pinned_bytes += stuck.bytes;  // the whole reservation is returned
  counters_.pinned_registrations += stuck.count;
  return *failed;
}

MrCacheCore::Shelf* MrCacheCore::shelf_locked(Access access) {
  const std::size_t count = shelf_count_.load();
  for (std::size_t i = 0; i < count; ++i)
    if (shelves_[i].access == access) return &shelves_[i];
  if (count == kShelvesMax) return nullptr;
  shelves_[count].access = access;
  shelf_count_.store(count + 1);
  return &shelves_[count];
}

bool MrCacheCore::publish(Registration& made, Access access, std::uint64_t invalidations) noexcept {
  Doomed doomed;
  bool published = false;
  {
    const remora::detail::MutexLock lock{mutex_};
    try {
      published =
          !closed_ && invalidations == invalidations_ && publish_locked(made, access, doomed);
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
  }
  finish(doomed);
  return published;
}

bool MrCacheCore::publish_locked(Registration& made, Access access, Doomed& doomed) {
  Shelf* const shelf = shelf_locked(access);
  if (shelf == nullptr) return false;
  while (Interval* const around = shelf->index.find(made.begin, made.end)) {
    // Another thread was faster, unless its registration is dead; there may be a live one behind
    // it.
    if ((registration_of(*around).state.load() & Registration::kDead) == 0) return false;
    unlink_locked(registration_of(*around));
  }
  RegistrationList inside;
  shelf->index.for_each_touching(made.begin, made.end, [&inside, &made](Interval& item) {
    if (item.begin >= made.begin && item.end <= made.end) inside.push(registration_of(item));
  });
  while (Registration* const registration = inside.pop()) {
    if (kill_locked(*registration, doomed))
      ++counters_.superseded;
    else
      unlink_locked(*registration);
  }
  made.rest->queued_at = time_.fetch_add(1) + 1;
  made.used.store(made.rest->queued_at);
  const auto queued = order_.emplace(made.rest->queued_at, &made).first;
  made.state.fetch_or(Registration::kFresh);
  try {
    shelf->index.insert(made, retired_);
  } catch (...) {
    order_.erase(queued);
    throw;
  }
  made.rest->index = &shelf->index;
  return true;
}

void MrCacheCore::settle(Registration& made, std::uint64_t generation) {
  bool known = monitor_ == nullptr;
  for (int tries = 0; !known && tries < 1000; ++tries) {
    const std::uint64_t now = monitor_->generation();
    const bool missed =
        now != generation && monitor_->changed_since(generation, made.begin, made.end);
    if ((now & 1U) != 0 || monitor_->generation() != now)
      std::this_thread::yield();  // being reported, perhaps before it is in the index
    else if (missed)
      break;
    else
      known = true;
  }
  if (known) {
    made.state.fetch_and(~Registration::kFresh);
    return;
  }
  Doomed doomed;  // stays empty: this thread has a lease
  const remora::detail::MutexLock lock{mutex_};
  if (kill_locked(made, doomed)) ++counters_.unkept;
}

MrCacheCore::Emptied MrCacheCore::deregister(std::vector<MemoryRegion>& pieces) noexcept {
  Emptied emptied;
  for (MemoryRegion& piece : pieces) {
    const std::uint64_t bytes =
        page_ceiling(piece.address() + piece.length_bytes()) - page_floor(piece.address());
    const Status done = std::move(piece).deregister();
    if (!done) {
      count_failure(done.error());
      report_teardown_failure(done.error());
    }
    Pinned& part = done ? emptied.freed : emptied.stuck;
    part.bytes += bytes;
    ++part.count;
  }
  pieces.clear();
  return emptied;
}

void MrCacheCore::count_failure(const Error& error) noexcept {
  const int number = error.system_errno();
  if (number == 0) return;
  const remora::detail::MutexLock lock{mutex_};
  ++failures_[number > 0 && static_cast<std::size_t>(number) < kErrnosMax
                  ? static_cast<std::size_t>(number)
                  : 0];
}

}  // namespace remora::verbs::detail
