#include "through_c/queue.h"

#include <limits>
#include <map>
#include <utility>

#include "through_c/call.h"
#include "through_c/client.h"
#include "through_c/many.h"

namespace remora::through_c {

Error to_error(const remora_error& error) noexcept {
  Error made = Error{static_cast<Code>(error.code - 1), "through the C API"}
                   .with_reason(static_cast<Reason>(error.reason))
                   .with_errno(error.system_errno)
                   .with_subject(error.subject)
                   .with_server(error.server);
  if (error.completion_status != 0)
    made = made.with_completion(static_cast<CompletionStatus>(error.completion_status),
                                error.vendor_error);
  if (error.has_limit != 0) made = made.with_limit(error.asked, error.allowed);
  if (error.has_place != 0) made = made.with_place(error.offset, error.length);
  return made;
}

namespace {

Ticket to_ticket(std::uint64_t word) noexcept {
  return {static_cast<std::uint32_t>(word >> 32U), static_cast<std::uint32_t>(word)};
}
std::uint64_t to_word(Ticket ticket) noexcept {
  return std::uint64_t{ticket.index()} << 32U | ticket.generation();
}

}  // namespace

Ticket Completion::ticket() const noexcept { return to_ticket(values_.ticket); }

Completions::Completions(std::shared_ptr<std::vector<Completion>> found, Status status) noexcept
    : found_{std::move(found)}, status_{std::move(status)} {}
Completions::~Completions() = default;

struct Queue::State {
  /// What a group of pairs has borrowed, and where its outcomes and old values go when it has
  /// ended.
  struct Group {
    std::vector<remora_pair_outcome> each;
    std::span<ManyOutcome> outcomes;
    std::vector<remora_add_pair> additions;
    std::span<FetchAddPair> added;
    std::vector<remora_swap_pair> swaps;
    std::span<CompareSwapPair> swapped;

    Group(std::size_t count, std::span<ManyOutcome> wanted)
        : each(wanted.empty() ? 0 : count, unwritten()), outcomes{wanted} {}
    [[nodiscard]] remora_pair_outcome* array() { return each.empty() ? nullptr : each.data(); }
    void end() const {
      give_outcomes(each, outcomes);
      take_before(additions, added);
      take_before(swaps, swapped);
    }
  };

  State(remora_queue* made, std::uint64_t block) noexcept : queue{made}, block_bytes{block} {}
  ~State() { remora_queue_free(queue); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Keeps what operation `word` has borrowed until its completion.
  Ticket keep(std::uint64_t word, Slot* slot, std::vector<remora_piece> array = {}) {
    if (word == 0) return {};
    if (slot != nullptr) slots[word] = std::move(*slot);
    if (!array.empty()) pieces[word] = std::move(array);
    return to_ticket(word);
  }

  // `call` is remora_queue_read() or remora_queue_write(), or its form for pieces.
  template <typename Call>
  std::uint64_t post(Call call, ByteOffset at, const LocalBytes& local, std::uint64_t tag) {
    return call(queue, at.bytes, local.data, local.length, local.memory, tag);
  }
  template <typename Call>
  Ticket post_slot(Call call, ByteOffset at, Slot& slot, std::uint64_t tag) {
    return keep(post(call, at, slot.local(), tag), &slot);
  }
  template <typename Call, typename Piece>
  Ticket post_pieces(Call call, ByteOffset at, std::span<const Piece> parts, std::uint64_t tag) {
    auto array = to_pieces(parts);
    if (!array) return {};  // in C the program has learned it from remora_piece_init()
    const std::uint64_t word = call(queue, at.bytes, array->data(), array->size(), tag);
    return keep(word, nullptr, std::move(*array));
  }

  Ticket keep(std::uint64_t word, Group&& group) {
    if (word != 0) groups.insert_or_assign(word, std::move(group));
    return to_ticket(word);
  }

  remora_queue* queue;
  std::uint64_t block_bytes;
  // By the words of tickets. They go after the queue.
  std::map<std::uint64_t, Slot> slots;
  std::map<std::uint64_t, std::vector<remora_piece>> pieces;
  std::map<std::uint64_t, Group> groups;
  /// What the last wait has returned, where its caller still has it.
  std::weak_ptr<std::vector<Completion>> given;
};

Queue::Queue(remora_queue* queue, std::uint64_t block_bytes)
    : state_{std::make_unique<State>(queue, block_bytes)} {}
Queue::~Queue() = default;
Queue::Queue(Queue&&) noexcept = default;
Queue& Queue::operator=(Queue&&) noexcept = default;

ByteOffset Queue::offset_of(Block block) const noexcept {
  return through_c::offset_of(block, state_->block_bytes);
}

Ticket Queue::read(ByteOffset from, Target into, std::uint64_t tag) {
  return to_ticket(state_->post(remora_queue_read, from, into.local(), tag));
}
Ticket Queue::read(Block from, Target into, std::uint64_t tag) {
  return read(offset_of(from), into, tag);
}
Ticket Queue::read(ByteOffset from, Slot&& into, std::uint64_t tag) {
  return state_->post_slot(remora_queue_read, from, into, tag);
}
Ticket Queue::read(Block from, Slot&& into, std::uint64_t tag) {
  return read(offset_of(from), std::move(into), tag);
}
Ticket Queue::read(ByteOffset from, std::span<const Target> into, std::uint64_t tag) {
  return state_->post_pieces(remora_queue_read_pieces, from, into, tag);
}

Ticket Queue::write(ByteOffset to, Source from, std::uint64_t tag) {
  return to_ticket(state_->post(remora_queue_write, to, from.local(), tag));
}
Ticket Queue::write(Block to, Source from, std::uint64_t tag) {
  return write(offset_of(to), from, tag);
}
Ticket Queue::write(ByteOffset to, Slot&& from, std::uint64_t tag) {
  return state_->post_slot(remora_queue_write, to, from, tag);
}
Ticket Queue::write(Block to, Slot&& from, std::uint64_t tag) {
  return write(offset_of(to), std::move(from), tag);
}
Ticket Queue::write(ByteOffset to, std::span<const Source> from, std::uint64_t tag) {
  return state_->post_pieces(remora_queue_write_pieces, to, from, tag);
}

Ticket Queue::write_notify(ByteOffset to, Source from, std::uint32_t notice, std::uint64_t tag) {
  const LocalBytes& local = from.local();
  return to_ticket(remora_queue_write_notify(state_->queue, to.bytes, local.data, local.length,
                                             local.memory, notice, tag));
}
Ticket Queue::write_zeroes(ByteOffset at, std::uint64_t length, std::uint64_t tag) {
  return to_ticket(remora_queue_write_zeroes(state_->queue, at.bytes, length, tag));
}
Ticket Queue::flush_visible(std::uint64_t tag) {
  return to_ticket(remora_queue_flush_visible(state_->queue, tag));
}
Ticket Queue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           std::uint64_t tag) {
  return to_ticket(remora_queue_compare_swap(state_->queue, at.bytes, expected, desired, tag));
}
Ticket Queue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) {
  return to_ticket(remora_queue_fetch_add(state_->queue, at.bytes, delta, tag));
}

Ticket Queue::read_many(std::span<const ReadPair> pairs, std::span<ManyOutcome> each,
                        std::uint64_t tag) {
  const auto given = to_pairs(pairs);
  if (!given) return {};  // in C the program has learned it from remora_piece_init()
  State::Group group{pairs.size(), each};
  const std::uint64_t word =
      remora_queue_read_many(state_->queue, given->data(), given->size(), group.array(), tag);
  return state_->keep(word, std::move(group));
}
Ticket Queue::write_many(std::span<const WritePair> pairs, std::span<ManyOutcome> each,
                         std::uint64_t tag) {
  const auto given = to_pairs(pairs);
  if (!given) return {};
  State::Group group{pairs.size(), each};
  const std::uint64_t word =
      remora_queue_write_many(state_->queue, given->data(), given->size(), group.array(), tag);
  return state_->keep(word, std::move(group));
}
Ticket Queue::fetch_add_many(std::span<FetchAddPair> pairs, std::span<ManyOutcome> each,
                             std::uint64_t tag) {
  State::Group group{pairs.size(), each};
  group.additions = to_pairs(pairs);
  group.added = pairs;
  const std::uint64_t word = remora_queue_fetch_add_many(state_->queue, group.additions.data(),
                                                         pairs.size(), group.array(), tag);
  return state_->keep(word, std::move(group));
}
Ticket Queue::compare_swap_many(std::span<CompareSwapPair> pairs, std::span<ManyOutcome> each,
                                std::uint64_t tag) {
  State::Group group{pairs.size(), each};
  group.swaps = to_pairs(pairs);
  group.swapped = pairs;
  const std::uint64_t word = remora_queue_compare_swap_many(state_->queue, group.swaps.data(),
                                                            pairs.size(), group.array(), tag);
  return state_->keep(word, std::move(group));
}

Status Queue::select(const Region& region) {
  const Status selected = carry_out([&](remora_error* error) {
    return remora_queue_select(state_->queue, region.handle(), error);
  });
  if (selected) state_->block_bytes = region.block_bytes();
  return selected;
}
Status Queue::submit() {
  return carry_out(
      [this](remora_error* error) { return remora_queue_submit(state_->queue, error); });
}
void Queue::barrier() { (void)remora_queue_barrier(state_->queue); }
Status Queue::cancel(Ticket ticket) {
  return carry_out([&](remora_error* error) {
    return remora_queue_cancel(state_->queue, to_word(ticket), error);
  });
}

/// `call` gets an array, its length, a count and an error.
template <typename Call>
Completions Queue::collect(Call call) {
  std::vector<remora_completion> found(depth());
  std::size_t count = 0;
  const Status status = carry_out(
      [&](remora_error* error) { return call(found.data(), found.size(), &count, error); });
  // A call that is refused, since another thread is in one, ends no completion of that thread.
  if (!status) return {std::make_shared<std::vector<Completion>>(), status};
  // The completions of the call before end now, with their slots.
  if (const auto before = state_->given.lock())
    for (Completion& each : *before) each.slot_ = Slot{};
  auto given = std::make_shared<std::vector<Completion>>(count);
  for (std::size_t i = 0; i < count; ++i) {
    Completion& each = (*given)[i];
    each.values_ = found[i];
    if (found[i].code != REMORA_OK) {
      const Status failed = carry_out([&](remora_error* error) {
        return remora_queue_completion_error(state_->queue, &found[i], error);
      });
      each.error_ =
          failed ? Error{Code::kInternal, "a failed completion without an error"} : failed.error();
    }
    if (const auto slot = state_->slots.extract(found[i].ticket))
      each.slot_ = std::move(slot.mapped());
    state_->pieces.erase(found[i].ticket);
    if (const auto group = state_->groups.extract(found[i].ticket)) group.mapped().end();
  }
  state_->given = given;
  return {std::move(given), status};
}

Completions Queue::wait(std::size_t at_least) {
  return collect(
      [&](remora_completion* found, std::size_t capacity, std::size_t* count, remora_error* error) {
        return remora_queue_wait(state_->queue, at_least, found, capacity, count, error);
      });
}
Completions Queue::poll() {
  return collect(
      [&](remora_completion* found, std::size_t capacity, std::size_t* count, remora_error* error) {
        return remora_queue_poll(state_->queue, found, capacity, count, error);
      });
}
Completions Queue::progress() {
  return collect(
      [&](remora_completion* found, std::size_t capacity, std::size_t* count, remora_error* error) {
        return remora_queue_progress(state_->queue, found, capacity, count, error);
      });
}

Result<int> Queue::event_fd() {
  int descriptor = -1;
  const Status made = carry_out([&](remora_error* error) {
    return remora_queue_event_fd(state_->queue, &descriptor, error);
  });
  if (!made) return made.error();
  return descriptor;
}

std::chrono::steady_clock::time_point Queue::next_deadline() const {
  using TimePoint = std::chrono::steady_clock::time_point;
  const std::uint64_t at = remora_queue_next_deadline(state_->queue);
  if (at == std::numeric_limits<std::uint64_t>::max()) return TimePoint::max();
  return TimePoint{std::chrono::nanoseconds{static_cast<std::int64_t>(at)}};
}
std::size_t Queue::depth() const { return remora_queue_depth(state_->queue); }
std::size_t Queue::size() const { return depth() - remora_queue_room(state_->queue); }

}  // namespace remora::through_c
