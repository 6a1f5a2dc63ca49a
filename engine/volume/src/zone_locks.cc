#include "zone_locks.h"

#include <new>
#include <utility>

#include <remora/assert.h>

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

/// Whether a range that came earlier than `range` overlaps it.
bool is_behind_another(const ZoneLocks::Range& range) noexcept {
  for (const ZoneLocks::Range* each = range.previous; each != nullptr; each = each->previous)
    if (each->begin < range.end && range.begin < each->end && !(each->shared && range.shared))
      return true;
  return false;
}

}  // namespace

Result<std::unique_ptr<ZoneLocks>> ZoneLocks::create(std::uint32_t zones) {
  try {
    return std::unique_ptr<ZoneLocks>{new ZoneLocks{std::make_unique<Zone[]>(zones)}};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "zones of a group"};
  }
}

void ZoneLocks::append(Zone& zone, Range& range) noexcept {
  range.next = nullptr;
  range.previous = zone.last;
  (zone.last == nullptr ? zone.first : zone.last->next) = &range;
  zone.last = &range;
}

void ZoneLocks::remove(Zone& zone, Range& range) noexcept {
  (range.previous == nullptr ? zone.first : range.previous->next) = range.next;
  (range.next == nullptr ? zone.last : range.next->previous) = range.previous;
  zone.changed.notify_all();
}

bool ZoneLocks::lock(Range& range, Time until) noexcept {
  Zone& zone = zones_[range.zone];
  MutexLock lock{zone.mutex};
  append(zone, range);
  const bool granted =
      zone.changed.wait_until(lock, until, [&] { return !is_behind_another(range); });
  if (!granted) remove(zone, range);
  return granted;
}

void ZoneLocks::unlock(Range& range) noexcept {
  Zone& zone = zones_[range.zone];
  const MutexLock lock{zone.mutex};
  remove(zone, range);
}

bool ZoneLocks::Hold::lock(std::uint32_t zone, std::uint64_t begin, std::uint64_t end, bool shared,
                           Time until) noexcept {
  REMORA_ASSERT(!held_, "a hold is of one range at a time");
  range_ = {.zone = zone, .begin = begin, .end = end, .shared = shared};
  held_ = locks_.lock(range_, until);
  return held_;
}

void ZoneLocks::Hold::release() noexcept {
  if (std::exchange(held_, false)) locks_.unlock(range_);
}

}  // namespace remora::volume::detail
