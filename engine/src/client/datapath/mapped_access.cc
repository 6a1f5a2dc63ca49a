#include "client/datapath/mapped_access.h"

#include <array>
#include <linux/membarrier.h>
#include <new>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <remora/assert.h>

namespace remora::detail {

/// A block of places, never freed: a thread that ends leaves its place to another thread.
struct MappedAccessPlaces {
  using Place = MappedAccess::Place;
  static constexpr std::size_t kPlaces = 64;

  std::array<Place, kPlaces> places{};
  std::atomic<MappedAccessPlaces*> next{nullptr};

  Place* take() noexcept {
    for (Place& place : places) {
      bool taken = false;
      if (place.taken.compare_exchange_strong(taken, true, std::memory_order_acquire))
        return &place;
    }
    return nullptr;
  }
  /// The next block, made if there is none. Null: out of memory.
  MappedAccessPlaces* follow() noexcept {
    MappedAccessPlaces* after = next.load(std::memory_order_acquire);
    if (after != nullptr) return after;
    auto* const made = new (std::nothrow) MappedAccessPlaces;
    if (made == nullptr) return nullptr;
    if (next.compare_exchange_strong(after, made, std::memory_order_acq_rel)) return made;
    delete made;
    return after;
  }
  static void forget_own() noexcept { MappedAccess::t_place = nullptr; }
  static bool is_own(const Place& place) noexcept { return &place == MappedAccess::t_place; }
  static void give_back(Place* place) noexcept {
    const bool taken = place->taken.exchange(false, std::memory_order_release);
    REMORA_ASSERT(taken, "a place is given back by the thread that has taken it");
  }
};

namespace {

using AccessPlace = MappedAccessPlaces::Place;

MappedAccessPlaces g_access_places;
/// Threads without memory for a place share this one, which marks nothing. While there are such
/// threads, every grant counts as accessed.
AccessPlace g_shared_place;
std::atomic<std::size_t> g_sharing_threads{0};
/// The AccessPlaceHolder of this thread has been destroyed.
constinit thread_local bool t_place_given_back = false;

/// Owns the place of a thread until the thread ends.
struct AccessPlaceHolder {
  AccessPlaceHolder() = default;
  ~AccessPlaceHolder() {
    // Thread-local objects that are destroyed later may access memory, too: they use a new place,
    // which stays with this thread.
    MappedAccessPlaces::forget_own();
    t_place_given_back = true;
    if (place == &g_shared_place) {
      const std::size_t sharing = g_sharing_threads.fetch_sub(1);
      REMORA_ASSERT(sharing > 0, "a thread that shares a place is counted");
    } else if (place != nullptr) {
      MappedAccessPlaces::give_back(place);
    }
  }
  AccessPlaceHolder(const AccessPlaceHolder&) = delete;
  AccessPlaceHolder& operator=(const AccessPlaceHolder&) = delete;
  AccessPlace* place = nullptr;
};

/// Runs in a child of fork(2) before fork() returns. The parent's threads do not exist there, so
/// their accesses of that moment would count for ever.
void give_back_places_of_parent() noexcept {
  g_sharing_threads.store(MappedAccessPlaces::is_own(g_shared_place) ? 1 : 0);
  for (MappedAccessPlaces* at = &g_access_places; at != nullptr; at = at->next.load())
    for (AccessPlace& place : at->places) {
      if (MappedAccessPlaces::is_own(place)) continue;
      place.serial.store(0);
      place.taken.store(false);
    }
}

/// Registers the handler once. If the C library has no memory for it, a child may find grants
/// accessed.
void watch_forks() noexcept {
  static const int registered = ::pthread_atfork(nullptr, nullptr, give_back_places_of_parent);
  (void)registered;
}

int membarrier(int command) noexcept {
  return static_cast<int>(::syscall(SYS_membarrier, command, 0, 0));
}

/// On return each other thread has passed a full barrier since the call.
void pass_barrier_in_all_threads() noexcept {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
    (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace

MappedAccess::Place* MappedAccess::acquire_place() noexcept {
  watch_forks();
  Place* found = nullptr;
  for (MappedAccessPlaces* at = &g_access_places; at != nullptr && found == nullptr;
       at = at->follow())
    found = at->take();
  if (found == nullptr) {
    g_sharing_threads.fetch_add(1);
    found = &g_shared_place;
  }
  if (!t_place_given_back) {
    thread_local AccessPlaceHolder t_holder;
    t_holder.place = found;
  }
  t_place = found;
  return found;
}

bool MappedAccess::accessed(std::uint64_t serial) noexcept {
  // A thread that passes the barrier after this finds the revocation in its check. Of a thread that
  // has passed it before, this thread sees the store.
  pass_barrier_in_all_threads();
  if (g_sharing_threads.load() != 0) return true;
  for (MappedAccessPlaces* at = &g_access_places; at != nullptr; at = at->next.load())
    for (const AccessPlace& place : at->places) {
      const std::uint64_t now = place.serial.load(std::memory_order_acquire);
      if (now == serial || now == kEveryGrant) return true;
    }
  return false;
}

}  // namespace remora::detail
