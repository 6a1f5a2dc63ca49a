/// Removals from the cache: eviction, invalidation, changes of the mapping, the end of the last
/// lease.

#include <algorithm>

#include <remora/assert.h>

#include "mr_cache_core.h"
#include "reader_epoch.h"

namespace remora::verbs::detail {
namespace {

using Registration = CachedRegistration;

}  // namespace

void MrCacheCore::requeue_first_locked(std::uint64_t at) noexcept {
  auto node = order_.extract(order_.begin());
  node.value().first = node.value().second->rest->queued_at = at;
  order_.insert(std::move(node));
}

Registration* MrCacheCore::evict_one_locked() noexcept {
  // Keys have the age of the last check: a registration that was used since is queued again with
  // its true age.
  for (std::size_t left = 2 * order_.size(); left > 0; --left) {
    Registration* const oldest = order_.begin()->second;
    std::uint64_t idle = 0;
    const std::uint64_t used = oldest->used.load(std::memory_order_relaxed);
    const bool leased = oldest->state.load() >= Registration::kLease;
    if (leased || used > oldest->rest->queued_at) {
      // Last of all: with the age of another registration it could stay the first.
      requeue_first_locked(leased ? time_.fetch_add(1) + 1 : used);
    } else if (oldest->state.compare_exchange_strong(idle, Registration::kDead)) {
      unlink_locked(*oldest);
      oldest->state.fetch_or(Registration::kUnlinked);
      ++counters_.evictions;
      ++finishing_;
      return oldest;
    } else if ((idle & Registration::kDead) != 0) {  // removed when it is collected
      requeue_first_locked(time_.fetch_add(1) + 1);
    }
  }
  return nullptr;
}

void MrCacheCore::unlink_locked(Registration& registration) noexcept {
  if (registration.rest->index == nullptr) return;
  registration.rest->index->erase(registration, retired_);
  registration.rest->index = nullptr;
  const std::size_t queued = order_.erase({registration.rest->queued_at, &registration});
  REMORA_ASSERT(queued == 1, "a registration in an index has its place in the order of use");
}

bool MrCacheCore::kill_locked(Registration& registration, Doomed& doomed) noexcept {
  if ((registration.state.fetch_or(Registration::kDead) & Registration::kDead) != 0) return false;
  unlink_locked(registration);
  doom_locked(registration, doomed);
  return true;
}

void MrCacheCore::doom_locked(Registration& registration, Doomed& doomed) noexcept {
  if (registration.state.fetch_or(Registration::kUnlinked) >= Registration::kLease) return;
  doomed.push(registration);
  ++finishing_;
}

std::size_t MrCacheCore::kill_touching_locked(const IntervalIndex& index, std::uintptr_t begin,
                                              std::uintptr_t end, Doomed& doomed) noexcept {
  RegistrationList touched;
  index.for_each_touching(begin, end, [&](Interval& item) { touched.push(registration_of(item)); });
  std::size_t killed = 0;
  while (Registration* const registration = touched.pop())
    if (kill_locked(*registration, doomed)) ++killed;
  return killed;
}

MrCacheCore::Doomed MrCacheCore::take_dead_locked() noexcept {
  Doomed doomed;
  Registration* next = dead_.exchange(nullptr);
  while (Registration* const registration = next) {
    next = registration->next_dead;
    unlink_locked(*registration);
    doom_locked(*registration, doomed);
  }
  return doomed;
}

bool MrCacheCore::collect_dead() noexcept {
  if (dead_.load() == nullptr) return false;
  Doomed doomed;
  {
    const remora::detail::MutexLock lock{mutex_};
    doomed = take_dead_locked();
  }
  finish(doomed);
  return true;
}

void MrCacheCore::changed(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept {
  const ReaderEpoch::Guard guard{ReaderEpoch::monitor_slot()};
  const std::size_t count = shelf_count_.load();
  for (std::size_t i = 0; i < count; ++i)
    shelves_[i].index.for_each_touching(begin, end, [&](Interval& item) {
      Registration& registration = registration_of(item);
      if ((registration.state.fetch_or(Registration::kDead) & Registration::kDead) != 0) return;
      changed_[static_cast<std::size_t>(how)].fetch_add(1, std::memory_order_relaxed);
      add_dead(registration);
    });
}

void MrCacheCore::add_dead(Registration& registration) noexcept {
  registration.next_dead = dead_.load();
  while (!dead_.compare_exchange_weak(registration.next_dead, &registration)) {
  }
}

std::size_t MrCacheCore::invalidate(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto end = begin + std::min<std::uintptr_t>(bytes.size(), UINTPTR_MAX - begin);
  std::size_t killed = 0;
  Doomed doomed;
  {
    const remora::detail::MutexLock lock{mutex_};
    ++invalidations_;
    for (std::size_t i = 0; i < shelf_count_.load(); ++i)
      killed += kill_touching_locked(shelves_[i].index, begin, end, doomed);
    counters_.explicitly += killed;
  }
  finish(doomed);
  return killed;
}

void MrCacheCore::finish_last(Registration* registration) noexcept {
  if (forked()) return;  // the lock may be held by a thread of the parent
  {
    const remora::detail::MutexLock lock{mutex_};
    ++finishing_;
  }
  finish(registration);
}

std::size_t MrCacheCore::trim() noexcept {
  std::size_t count = 0;
  for (;; ++count) {
    Registration* victim = nullptr;
    {
      const remora::detail::MutexLock lock{mutex_};
      victim = evict_one_locked();
    }
    if (victim == nullptr) break;
    finish(victim);
  }
  collect_dead();
  return count;
}

void MrCacheCore::finish(Doomed doomed) noexcept {
  while (Registration* const registration = doomed.pop()) finish(registration);
}

void MrCacheCore::finish(Registration* registration) noexcept {
  if (forked()) return;  // of the parent process: not touched
  const std::shared_ptr<MrCacheCore> self = std::move(registration->rest->core);
  const Pinned freed = deregister(registration->rest->pieces).freed;
  const remora::detail::MutexLock lock{mutex_};
  REMORA_ASSERT(
      counters_.pinned_bytes >= freed.bytes && counters_.pinned_registrations >= freed.count,
      "what is deregistered has been counted as pinned");
  counters_.pinned_bytes -= freed.bytes;
  counters_.pinned_registrations -= freed.count;
  retired_.add(*registration->rest);
  retired_.collect();
  REMORA_ASSERT(finishing_ > 0, "a registration is counted in finishing_ before it is finished");
  --finishing_;
  finished_.notify_all();
}

}  // namespace remora::verbs::detail
