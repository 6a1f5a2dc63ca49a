#pragma once

/// A queue through the C API, with the names and functions of <remora/engine/queue.h>.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <remora/engine/many.h>
#include <remora/engine/queue.h>
#include <remora/engine/types.h>
#include <remora/remora_c.h>
#include <remora/result.h>

#include "through_c/memory.h"

namespace remora::through_c {

class Region;

/// The C++ error that stands behind a C one. Its operation is not kept: it is no literal.
Error to_error(const remora_error& error) noexcept;

class Completion {
 public:
  [[nodiscard]] bool ok() const noexcept { return !error_; }
  [[nodiscard]] Error error() const noexcept { return *error_; }
  [[nodiscard]] Ticket ticket() const noexcept;
  [[nodiscard]] std::uint64_t tag() const noexcept { return values_.tag; }
  [[nodiscard]] std::uint64_t old_value() const noexcept { return values_.old_value; }
  [[nodiscard]] Slot& slot() noexcept { return slot_; }

 private:
  friend class Queue;
  remora_completion values_{};
  std::optional<Error> error_;
  Slot slot_;
};

class Completions {
 public:
  Completions(std::shared_ptr<std::vector<Completion>> found, Status status) noexcept;
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  [[nodiscard]] Completion* begin() const noexcept { return found_->data(); }
  [[nodiscard]] Completion* end() const noexcept { return found_->data() + found_->size(); }
  [[nodiscard]] std::size_t size() const noexcept { return found_->size(); }
  [[nodiscard]] bool empty() const noexcept { return found_->empty(); }
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  std::shared_ptr<std::vector<Completion>> found_;
  Status status_;
};

class Queue {
 public:
  Queue(remora_queue* queue, std::uint64_t block_bytes);
  ~Queue();
  Queue(Queue&&) noexcept;
  Queue& operator=(Queue&&) noexcept;

  Ticket read(ByteOffset from, Target into, std::uint64_t tag = 0);
  Ticket read(Block from, Target into, std::uint64_t tag = 0);
  Ticket read(ByteOffset from, Slot&& into, std::uint64_t tag = 0);
  Ticket read(Block from, Slot&& into, std::uint64_t tag = 0);
  Ticket read(ByteOffset from, std::span<const Target> into, std::uint64_t tag = 0);
  Ticket write(ByteOffset to, Source from, std::uint64_t tag = 0);
  Ticket write(Block to, Source from, std::uint64_t tag = 0);
  Ticket write(ByteOffset to, Slot&& from, std::uint64_t tag = 0);
  Ticket write(Block to, Slot&& from, std::uint64_t tag = 0);
  Ticket write(ByteOffset to, std::span<const Source> from, std::uint64_t tag = 0);
  Ticket write_notify(ByteOffset to, Source from, std::uint32_t notice, std::uint64_t tag = 0);
  Ticket write_zeroes(ByteOffset at, std::uint64_t length, std::uint64_t tag = 0);
  Ticket flush_visible(std::uint64_t tag = 0);
  Ticket compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t tag = 0);
  Ticket fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag = 0);

  // `each` has as many outcomes as there are pairs, or none: C asks for no number.
  Ticket read_many(std::span<const ReadPair> pairs, std::span<ManyOutcome> each = {},
                   std::uint64_t tag = 0);
  Ticket write_many(std::span<const WritePair> pairs, std::span<ManyOutcome> each = {},
                    std::uint64_t tag = 0);
  Ticket fetch_add_many(std::span<FetchAddPair> pairs, std::span<ManyOutcome> each = {},
                        std::uint64_t tag = 0);
  Ticket compare_swap_many(std::span<CompareSwapPair> pairs, std::span<ManyOutcome> each = {},
                           std::uint64_t tag = 0);

  Status select(const Region& region);
  Status submit();
  void barrier();
  Status cancel(Ticket ticket);
  Completions wait(std::size_t at_least);
  Completions poll();
  Completions progress();
  Result<int> event_fd();
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const;
  [[nodiscard]] std::size_t depth() const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool full() const { return size() == depth(); }

 private:
  struct State;
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  template <typename Call>
  Completions collect(Call call);
  std::unique_ptr<State> state_;
};

}  // namespace remora::through_c
