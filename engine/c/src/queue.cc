// The queue. Each operation passes through these functions: unit_c_cost counts their instructions.

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "call.h"
#include "collecting.h"
#include "handles.h"
#include "outcomes.h"
#include "volume_queue_handle.h"

using remora::ByteOffset;
using remora::Code;
using remora::Completion;
using remora::Completions;
using remora::Error;
using remora::ManyOutcome;
using remora::Queue;
using remora::Source;
using remora::Status;
using remora::Target;
using remora::Ticket;
using remora::c::Call;
using remora::c::Collecting;
using remora::c::is_aligned;
using remora::c::is_live;
using remora::c::Outcomes;
using remora::c::source_of;
using remora::c::sources;
using remora::c::target_of;
using remora::c::targets;
using remora::c::to_code;
using remora::c::to_reason;
using remora::c::VolumeQueueHandle;
using remora::detail::CompletionValues;

// NOLINTNEXTLINE(readability-identifier-naming): of the C API
struct remora_queue : remora::c::Handle {
  static constexpr auto kKind = remora::c::Kind::kQueue;
  static constexpr remora::Operation kName{"remora_queue"};
  explicit remora_queue(remora::Queue&& made) noexcept : Handle{kKind}, queue{std::move(made)} {}
  ~remora_queue() { end(); }
  remora_queue(const remora_queue&) = delete;
  remora_queue& operator=(const remora_queue&) = delete;

  /// Completions that a wait has found and the caller's array had no room for: kept until a later
  /// call.
  struct Found {
    Completions completions;
    Completion* next;
  };
  /// A failed completion of the last call.
  struct Failed {
    std::uint64_t ticket;
    Error error;
  };

  void end() noexcept {
    if (std::exchange(has_found, false)) std::destroy_at(&found);
  }

  /// False: there is no memory for it.
  [[nodiscard]] bool prepare_wanted() noexcept {
    try {
      wanted.resize(queue.depth());
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  remora::Queue queue;
  std::uint32_t made_in = remora::detail::made_here();
  std::atomic<bool> collecting = false;  ///< the fields below belong to the call that sets it
  bool has_found = false;
  union {
    Found found;  ///< while has_found
  };
  std::vector<Failed> failed;
  /// For each operation in flight that is a group of pairs: the array for its outcomes. By the
  /// place in the queue that tickets begin with; empty before the first group with wanted outcomes.
  std::vector<Outcomes> wanted;
};

namespace {

/// The word of a ticket, as CompletionValues has it; 0 where nothing was taken.
[[gnu::always_inline]] inline std::uint64_t word_of(Ticket ticket) noexcept {
  return std::bit_cast<std::uint64_t>(ticket);
}

/// `body` gives an operation to the queue. Returns the word of its ticket; 0 where the queue cannot
/// be used.
template <typename Body>
[[gnu::always_inline]] inline std::uint64_t take(remora_queue* queue, const Body& body) noexcept {
  if (!is_live(queue)) [[unlikely]]
    return 0;
  return word_of(body(queue->queue));
}
/// The same for operations that the queue of a volume has, too. `body` gives it to either queue,
/// with the tag for that queue.
template <typename Body>
[[gnu::always_inline]] inline std::uint64_t take_in_any(remora_queue* queue, std::uint64_t tag,
                                                        const Body& body) noexcept {
  if (is_live(queue)) [[likely]]
    return word_of(body(queue->queue, tag));
  auto* const of_volume = VolumeQueueHandle::of(queue);
  return of_volume == nullptr ? 0 : of_volume->take(tag, body);
}

/// The bytes of an operation; empty for a handle that cannot be used, so that the operation fails.
[[nodiscard]] Target checked_target(void* data, std::size_t length,
                                    const remora_memory* memory) noexcept {
  if (memory != nullptr && !is_live(memory)) return std::span<std::byte>{};
  return target_of(data, length, memory);
}
[[nodiscard]] Source checked_source(const void* data, std::size_t length,
                                    const remora_memory* memory) noexcept {
  if (memory != nullptr && !is_live(memory)) return std::span<const std::byte>{};
  return source_of(data, length, memory);
}
/// Whether the queue can be used, and `memory` is aligned: one test for both pointers.
[[nodiscard, gnu::always_inline]] inline bool usable(const remora_queue* queue,
                                                     const remora_memory* memory) noexcept {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(queue) | reinterpret_cast<std::uintptr_t>(memory);
  static_assert(alignof(remora_queue) == alignof(remora_memory));
  return queue != nullptr && bits % alignof(remora_queue) == 0 &&
         queue->kind == remora_queue::kKind;
}
/// Whether the bytes lie in memory that this process has registered: then the engine can take them
/// without a change. `memory` is aligned.
[[nodiscard, gnu::always_inline]] inline bool lies_within(const void* data, std::size_t length,
                                                          const remora_memory& memory) noexcept {
  if (memory.kind != remora_memory::kKind || memory.made_in != remora::detail::this_process())
    return false;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - memory.base);
  return offset <= memory.length && length <= memory.length - offset;
}

// Queues of volumes, and wrong arguments: each operation gets its completion, unless the queue
// cannot be used.
[[gnu::cold, gnu::noinline]] std::uint64_t read_closely(remora_queue* queue, std::uint64_t offset,
                                                        void* into, std::size_t length,
                                                        const remora_memory* memory,
                                                        std::uint64_t tag) noexcept {
  return take_in_any(queue, tag, [&](auto& to, std::uint64_t word) {
    return to.read(ByteOffset{offset}, checked_target(into, length, memory), word);
  });
}
[[gnu::cold, gnu::noinline]] std::uint64_t write_closely(remora_queue* queue, std::uint64_t offset,
                                                         const void* from, std::size_t length,
                                                         const remora_memory* memory,
                                                         std::uint64_t tag) noexcept {
  return take_in_any(queue, tag, [&](auto& to, std::uint64_t word) {
    return to.write(ByteOffset{offset}, checked_source(from, length, memory), word);
  });
}

[[nodiscard]] inline std::size_t checked_count(const remora_piece* pieces,
                                               std::size_t count) noexcept {
  return pieces == nullptr || !is_aligned(pieces) ? 0 : count;
}

[[gnu::cold, gnu::noinline]] void put_error(remora_queue& queue, const Completion& completion,
                                            remora_completion& to) noexcept {
  const Error error = completion.error();
  to.old_value = 0;
  to.code = to_code(error.code());
  to.reason = to_reason(error.reason());
  try {
    queue.failed.push_back({.ticket = to.ticket, .error = error});
  } catch (const std::bad_alloc&) {  // the code is there
  }
}

static_assert(sizeof(remora_completion) == sizeof(CompletionValues) &&
              offsetof(remora_completion, tag) == offsetof(CompletionValues, tag) &&
              offsetof(remora_completion, ticket) == offsetof(CompletionValues, ticket) &&
              offsetof(remora_completion, old_value) == offsetof(CompletionValues, old_value) &&
              offsetof(remora_completion, code) == offsetof(CompletionValues, outcome));

/// Takes a group of pairs, which `body` gives to the queue. Returns 0 where nothing was taken.
template <typename Pair, typename Body>
std::uint64_t take_many(remora_queue* queue, const Pair* pairs, std::size_t count,
                        remora_pair_outcome* each, const Body& body) noexcept {
  if (!is_live(queue) || pairs == nullptr || !is_aligned(pairs) || !is_aligned(each)) return 0;
  if (each != nullptr && !queue->prepare_wanted()) return 0;
  const Outcomes outcomes{each, count};
  const Ticket ticket = body(queue->queue, outcomes.for_engine());
  if (ticket && each != nullptr) queue->wanted[ticket.index()] = outcomes;
  return word_of(ticket);
}

/// Writes the outcomes of the groups of pairs among the completions.
[[gnu::cold, gnu::noinline]] void give_outcomes(
    remora_queue& queue, std::span<const remora_completion> completions) noexcept {
  for (const remora_completion& each : completions)
    std::exchange(queue.wanted[each.ticket >> 32U], {}).convert();
}

/// Hands over the completions found, as far as the array has room; returns their number.
std::size_t hand_over_found(remora_queue& queue, remora_completion* to,
                            std::size_t capacity) noexcept {
  if (!queue.has_found) return 0;
  remora_queue::Found& found = queue.found;
  const auto left = static_cast<std::size_t>(found.completions.end() - found.next);
  const std::span<const Completion> some{found.next, std::min(capacity, left)};
  // The engine writes a completion that is ok in the layout of the caller.
  if (!remora::detail::read_values(some, reinterpret_cast<CompletionValues*>(to))) [[unlikely]]
    for (std::size_t i = 0; i < some.size(); ++i)
      if (!some[i].ok()) put_error(queue, some[i], to[i]);
  if (!queue.wanted.empty()) [[unlikely]]
    give_outcomes(queue, {to, some.size()});
  found.next += some.size();
  if (some.size() == left) queue.end();
  return some.size();
}

/// The next completions. `look` gets them from the queue when none are left over.
template <typename Look>
int collect(Call& call, remora_queue* queue, std::size_t at_least, remora_completion* completions,
            std::size_t capacity, std::size_t* count, const Look& look) noexcept {
  call.on(queue).into(completions, "completions").into(count, "count");
  return call.run([&]() -> Status {
    *count = 0;
    if (capacity == 0)
      return Error{Code::kInvalidArgument, call.operation()}.with_subject("capacity");
    // In a child of fork(2) the flag may be set, where a thread of the parent was in a call: the
    // engine refuses the call.
    if (queue->made_in != remora::detail::this_process()) [[unlikely]]
      return look(0).status();
    const Collecting owner{queue->collecting};
    if (!owner) [[unlikely]]
      return Error{Code::kBusy, call.operation()}.with_subject(
          "another thread is in a call of this queue");
    queue->failed.clear();
    const std::size_t wanted = std::min(at_least, capacity);
    *count = hand_over_found(*queue, completions, capacity);
    if (*count == capacity || (at_least != 0 && *count >= wanted)) return {};
    const std::size_t more = wanted - std::min(wanted, *count);
    ::new (static_cast<void*>(&queue->found)) remora_queue::Found{look(more), nullptr};
    queue->has_found = true;
    queue->found.next = queue->found.completions.begin();
    const Status status =
        queue->found.completions.empty() ? queue->found.completions.status() : Status{};
    *count += hand_over_found(*queue, completions + *count, capacity - *count);
    return status;
  });
}

}  // namespace

int remora_queue_create(const remora_region* region, const remora_queue_options* options,
                        remora_queue** queue, remora_error* error) noexcept {
  Call call{"remora_queue_create", error};
  remora_queue_options given{};
  call.on(region).into(queue, "queue");
  if (options != nullptr) call.copies(options, given, "options: its size");
  return call.run([&] {
    return remora::c::make_handle(region->object.queue(remora::c::to_queue_options(given)), queue);
  });
}
void remora_queue_free(remora_queue* queue) noexcept {
  remora::c::free_handle(VolumeQueueHandle::of(queue));
  remora::c::free_handle(queue);
}

uint64_t remora_queue_read(remora_queue* queue, uint64_t offset, void* into, size_t length,
                           const remora_memory* memory, uint64_t tag) noexcept {
  if (!usable(queue, memory)) [[unlikely]]
    return read_closely(queue, offset, into, length, memory, tag);
  if (memory == nullptr)
    return word_of(queue->queue.read(ByteOffset{offset},
                                     std::span{static_cast<std::byte*>(into), length}, tag));
  if (!lies_within(into, length, *memory)) [[unlikely]]
    return read_closely(queue, offset, into, length, memory, tag);
  const remora_piece piece{.data = into, .length = length, .registered = memory->local};
  return word_of(queue->queue.read(ByteOffset{offset}, std::bit_cast<Target>(piece), tag));
}

uint64_t remora_queue_write(remora_queue* queue, uint64_t offset, const void* from, size_t length,
                            const remora_memory* memory, uint64_t tag) noexcept {
  if (!usable(queue, memory)) [[unlikely]]
    return write_closely(queue, offset, from, length, memory, tag);
  if (memory == nullptr)
    return word_of(queue->queue.write(ByteOffset{offset},
                                      std::span{static_cast<const std::byte*>(from), length}, tag));
  if (!lies_within(from, length, *memory)) [[unlikely]]
    return write_closely(queue, offset, from, length, memory, tag);
  const remora_piece piece{
      .data = const_cast<void*>(from), .length = length, .registered = memory->local};
  return word_of(queue->queue.write(ByteOffset{offset}, std::bit_cast<Source>(piece), tag));
}

uint64_t remora_queue_read_pieces(remora_queue* queue, uint64_t offset, const remora_piece* pieces,
                                  size_t count, uint64_t tag) noexcept {
  return take(queue, [&](Queue& to) {
    return to.read(ByteOffset{offset}, targets(pieces, checked_count(pieces, count)), tag);
  });
}

uint64_t remora_queue_write_pieces(remora_queue* queue, uint64_t offset, const remora_piece* pieces,
                                   size_t count, uint64_t tag) noexcept {
  return take(queue, [&](Queue& to) {
    return to.write(ByteOffset{offset}, sources(pieces, checked_count(pieces, count)), tag);
  });
}

uint64_t remora_queue_write_notify(remora_queue* queue, uint64_t offset, const void* from,
                                   size_t length, const remora_memory* memory, uint32_t notice,
                                   uint64_t tag) noexcept {
  return take(queue, [&](Queue& to) {
    return to.write_notify(ByteOffset{offset}, checked_source(from, length, memory), notice, tag);
  });
}

uint64_t remora_queue_write_zeroes(remora_queue* queue, uint64_t offset, uint64_t length,
                                   uint64_t tag) noexcept {
  return take_in_any(queue, tag, [&](auto& to, std::uint64_t word) {
    return to.write_zeroes(ByteOffset{offset}, length, word);
  });
}

uint64_t remora_queue_flush_visible(remora_queue* queue, uint64_t tag) noexcept {
  return take_in_any(queue, tag,
                     [&](auto& to, std::uint64_t word) { return to.flush_visible(word); });
}

uint64_t remora_queue_compare_swap(remora_queue* queue, uint64_t offset, uint64_t expected,
                                   uint64_t desired, uint64_t tag) noexcept {
  return take_in_any(queue, tag, [&](auto& to, std::uint64_t word) {
    return to.compare_swap(ByteOffset{offset}, expected, desired, word);
  });
}

uint64_t remora_queue_fetch_add(remora_queue* queue, uint64_t offset, uint64_t delta,
                                uint64_t tag) noexcept {
  return take_in_any(queue, tag, [&](auto& to, std::uint64_t word) {
    return to.fetch_add(ByteOffset{offset}, delta, word);
  });
}

uint64_t remora_queue_read_many(remora_queue* queue, const remora_pair* pairs, size_t count,
                                remora_pair_outcome* each, uint64_t tag) noexcept {
  return take_many(queue, pairs, count, each, [&](Queue& to, std::span<ManyOutcome> outcomes) {
    return to.read_many(remora::c::reads(pairs, count), outcomes, tag);
  });
}

uint64_t remora_queue_write_many(remora_queue* queue, const remora_pair* pairs, size_t count,
                                 remora_pair_outcome* each, uint64_t tag) noexcept {
  return take_many(queue, pairs, count, each, [&](Queue& to, std::span<ManyOutcome> outcomes) {
    return to.write_many(remora::c::writes(pairs, count), outcomes, tag);
  });
}

uint64_t remora_queue_fetch_add_many(remora_queue* queue, remora_add_pair* pairs, size_t count,
                                     remora_pair_outcome* each, uint64_t tag) noexcept {
  return take_many(queue, pairs, count, each, [&](Queue& to, std::span<ManyOutcome> outcomes) {
    return to.fetch_add_many(remora::c::additions(pairs, count), outcomes, tag);
  });
}

uint64_t remora_queue_compare_swap_many(remora_queue* queue, remora_swap_pair* pairs, size_t count,
                                        remora_pair_outcome* each, uint64_t tag) noexcept {
  return take_many(queue, pairs, count, each, [&](Queue& to, std::span<ManyOutcome> outcomes) {
    return to.compare_swap_many(remora::c::swaps(pairs, count), outcomes, tag);
  });
}

int remora_queue_select(remora_queue* queue, const remora_region* region,
                        remora_error* error) noexcept {
  Call call{"remora_queue_select", error};
  if (VolumeQueueHandle::of(queue) != nullptr)
    return call.fail(VolumeQueueHandle::lacks(call.operation()));
  return call.on(queue).on(region).run([&] { return queue->queue.select(region->object); });
}

int remora_queue_submit(remora_queue* queue, remora_error* error) noexcept {
  Call call{"remora_queue_submit", error};
  if (auto* const of_volume = VolumeQueueHandle::of(queue)) [[unlikely]]
    return call.run([&] { return of_volume->submit(call.operation()); });
  return call.on(queue).run([&] { return queue->queue.submit(); });
}

int remora_queue_barrier(remora_queue* queue) noexcept {
  if (VolumeQueueHandle::of(queue) != nullptr) return REMORA_UNSUPPORTED;
  return Call{"remora_queue_barrier", nullptr}.on(queue).run([&]() -> Status {
    queue->queue.barrier();
    return {};
  });
}

int remora_queue_cancel(remora_queue* queue, uint64_t ticket, remora_error* error) noexcept {
  Call call{"remora_queue_cancel", error};
  if (VolumeQueueHandle::of(queue) != nullptr)
    return call.fail(VolumeQueueHandle::lacks(call.operation()));
  return call.on(queue).run([&] {
    return queue->queue.cancel(
        Ticket{static_cast<std::uint32_t>(ticket >> 32U), static_cast<std::uint32_t>(ticket)});
  });
}

int remora_queue_wait(remora_queue* queue, size_t at_least, remora_completion* completions,
                      size_t capacity, size_t* count, remora_error* error) noexcept {
  Call call{"remora_queue_wait", error};
  if (auto* const of_volume = VolumeQueueHandle::of(queue)) [[unlikely]]
    return of_volume->collect(call, VolumeQueueHandle::Look::kWait, at_least, completions, capacity,
                              count);
  return collect(call, queue, at_least, completions, capacity, count,
                 [queue](std::size_t more) { return queue->queue.wait(more); });
}

int remora_queue_poll(remora_queue* queue, remora_completion* completions, size_t capacity,
                      size_t* count, remora_error* error) noexcept {
  Call call{"remora_queue_poll", error};
  if (auto* const of_volume = VolumeQueueHandle::of(queue)) [[unlikely]]
    return of_volume->collect(call, VolumeQueueHandle::Look::kPoll, 0, completions, capacity,
                              count);
  return collect(call, queue, 0, completions, capacity, count,
                 [queue](std::size_t /*more*/) { return queue->queue.poll(); });
}

int remora_queue_progress(remora_queue* queue, remora_completion* completions, size_t capacity,
                          size_t* count, remora_error* error) noexcept {
  Call call{"remora_queue_progress", error};
  if (auto* const of_volume = VolumeQueueHandle::of(queue)) [[unlikely]]
    return of_volume->collect(call, VolumeQueueHandle::Look::kProgress, 0, completions, capacity,
                              count);
  return collect(call, queue, 0, completions, capacity, count,
                 [queue](std::size_t /*more*/) { return queue->queue.progress(); });
}

int remora_queue_completion_error(const remora_queue* queue, const remora_completion* completion,
                                  remora_error* error) noexcept {
  Call call{"remora_queue_completion_error", error};
  const auto* const of_volume = VolumeQueueHandle::of(queue);
  if (of_volume == nullptr) call.on(queue);
  call.into(completion, "completion");
  if (call.code() != REMORA_OK) return call.code();
  if (of_volume != nullptr) {
    const Error* const found = of_volume->error_of(*completion);
    if (found != nullptr) return remora::c::hand_over(*found, error);
    return call.fail(Error{Code::kNotFound, call.operation()}.with_subject("completion"));
  }
  for (const remora_queue::Failed& failed : queue->failed)
    if (failed.ticket == completion->ticket) return remora::c::hand_over(failed.error, error);
  return call.fail(Error{Code::kNotFound, call.operation()}.with_subject("completion"));
}

int remora_queue_event_fd(remora_queue* queue, int* descriptor, remora_error* error) noexcept {
  Call call{"remora_queue_event_fd", error};
  auto* const of_volume = VolumeQueueHandle::of(queue);
  if (of_volume == nullptr) call.on(queue);
  return call.into(descriptor, "descriptor").run([&]() -> Status {
    const auto made = of_volume != nullptr ? of_volume->event_fd() : queue->queue.event_fd();
    if (!made) return made.error();
    *descriptor = *made;
    return {};
  });
}

uint64_t remora_queue_next_deadline(const remora_queue* queue) noexcept {
  if (const auto* const of_volume = VolumeQueueHandle::of(queue)) return of_volume->next_deadline();
  if (!is_live(queue)) return std::numeric_limits<std::uint64_t>::max();
  return remora::c::monotonic_ns(queue->queue.next_deadline());
}

size_t remora_queue_depth(const remora_queue* queue) noexcept {
  if (const auto* const of_volume = VolumeQueueHandle::of(queue)) return of_volume->depth();
  return is_live(queue) ? queue->queue.depth() : 0;
}
size_t remora_queue_room(const remora_queue* queue) noexcept {
  if (const auto* const of_volume = VolumeQueueHandle::of(queue)) return of_volume->room();
  return is_live(queue) ? queue->queue.depth() - queue->queue.size() : 0;
}
