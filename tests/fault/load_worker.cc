#include "load_worker.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/crc32c.h"

namespace remora::fault {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr std::byte kScribble{0xee};

}  // namespace

LoadWorker::LoadWorker(const LoadOptions& options, LoadLedger& ledger, std::uint32_t index,
                       std::uint64_t first, std::uint64_t count, std::uint32_t depth)
    : options_{options},
      ledger_{ledger},
      index_{index},
      first_{first},
      depth_{depth},
      random_{options.seed * 1000 + index},
      memory_(2 * std::max<std::size_t>(depth, 4) * kLoadBlockBytes),
      operations_(std::max<std::size_t>(depth, 1)) {
  models_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) idle_blocks_.push_back(i);
  for (std::size_t i = 0; i < operations_.size(); ++i) idle_operations_.push_back(i);
  for (std::size_t i = 0; i < memory_.size() / kLoadBlockBytes; ++i) rest(i);
  new_life(1);
}

void LoadWorker::new_life(std::uint64_t session) {
  session_ = session;
  models_.clear();
  last_seen_.fill(0);
  for (std::uint64_t i = 0; i < idle_blocks_.size(); ++i) {
    models_.emplace_back(session, (first_ + i) * kLoadBlockBytes, ledger_.page().zeroes_each());
    BlockCell& cell = ledger_.page().blocks()[first_ + i];
    cell.session = session;
    cell.issued = 0;
    cell.acknowledged = 0;
  }
}

Status LoadWorker::take_over(const Region& region) {
  std::vector<std::byte> block(kLoadBlockBytes);
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const Stamp stamp = models_[i].begin_write();
    write_stamp(block, stamp);
    ledger_.page().blocks()[first_ + i].issued = stamp.sequence;
    const auto submitted = Clock::now();
    ledger_.begun(LoadKind::kWrite);
    const Status written = region.write(ByteOffset{stamp.offset}, block, options_.deadline);
    ledger_.ended(LoadKind::kWrite, written, submitted);
    if (!written) {
      models_[i].indeterminate(stamp.sequence);
      return written;
    }
    models_[i].acknowledged(stamp.sequence);
    ledger_.page().blocks()[first_ + i].acknowledged = stamp.sequence;
  }
  return ok_status();
}

Status LoadWorker::look(const Region& region) {
  std::vector<std::byte> block(kLoadBlockBytes);
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto submitted = Clock::now();
    ledger_.begun(LoadKind::kRead);
    const Status seen = region.read(ByteOffset{models_[i].offset()}, block, options_.deadline);
    ledger_.ended(LoadKind::kRead, seen, submitted);
    if (!seen) return seen;
    look_at(i, block, "at the end");
  }
  return ok_status();
}

void LoadWorker::run(const Engine& engine, const Region& region) {
  pace_from_ = Clock::now();
  paced_ = 0;
  if (depth_ == 0) return work_synchronously(region);
  work_queued(engine, region);
}

void LoadWorker::work_queued(const Engine& engine, const Region& region) {
  // Every other worker's buffers are the application's own, and go as the engine sees fit.
  if (index_ % 2 == 0) {
    auto registered = engine.register_memory(memory_);
    if (registered) registered_.emplace(std::move(*registered));
  }
  auto queue = region.queue({.depth = depth_, .deadline = options_.deadline});
  if (!queue) {
    if (queue.error().code() != Code::kConnectionLost && queue.error().code() != Code::kStaleRegion)
      ledger_.violation("a queue could not be made: " + queue.error().message());
    registered_.reset();
    return ledger_.session_over();
  }
  const auto wait = [&](std::size_t count) {
    all_failed_ = true;
    for (const Completion& completion : queue->wait(count)) complete(completion);
  };
  while (!ledger_.over()) {
    pace();
    while (!queue->full() && !idle_operations_.empty()) {
      const std::size_t at = idle_operations_.back();
      if (!begin(at)) break;
      take(*queue, at);
    }
    const auto now = Clock::now();
    for (Operation& one : operations_)
      if (one.open && one.submitted == Clock::time_point{}) one.submitted = now;
    if (const Status submitted = queue->submit(); !submitted)
      ledger_.violation("submit: " + submitted.error().message());
    wait(1);
    if (all_failed_) std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  const auto limit = Clock::now() + options_.deadline + options_.paused + 2 * kGrace;
  while (queue->size() != 0 && Clock::now() < limit) wait(queue->size());
  for (Operation& one : operations_)
    if (one.open) ledger_.violation("I2: an operation never ended");
  registered_.reset();
}

void LoadWorker::work_synchronously(const Region& region) {
  while (!ledger_.over()) {
    pace();
    all_failed_ = true;
    carry_out(region);
    if (all_failed_) std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

bool LoadWorker::begin(std::size_t at) {
  Operation& one = operations_[at];
  std::uint32_t pick = static_cast<std::uint32_t>(
      random_.below(options_.reads + options_.writes + options_.swaps + options_.adds));
  LoadKind kind = LoadKind::kAdd;
  if (pick < options_.reads)
    kind = LoadKind::kRead;
  else if (pick -= options_.reads; pick < options_.writes)
    kind = LoadKind::kWrite;
  else if (pick -= options_.writes; pick < options_.swaps)
    kind = LoadKind::kSwap;
  const std::uint32_t generation = one.generation + 1;
  one = {};
  one.generation = generation;
  one.kind = kind;
  if (kind == LoadKind::kSwap || kind == LoadKind::kAdd) {
    if (atomics_full_) {
      if (options_.reads + options_.writes != 0) return begin(at);
      ledger_.stop();  // there is room for no more of what it was asked for
      return false;
    }
    const std::uint64_t which = random_.below(kLoadWords);
    WordOperation recorded;
    recorded.kind = kind == LoadKind::kAdd ? WordOperation::Kind::kAdd : WordOperation::Kind::kSwap;
    // Equal ones, where they are not reads: of many unknown additions only their number matters
    // then, and the checker's work does not grow with the ways in which different ones make a sum.
    recorded.expected = kind == LoadKind::kAdd ? random_.below(2) : last_seen_.at(which);
    recorded.desired = recorded.expected + 1000 + random_.below(1'000'000);
    one.word = which * kLoadWordStride;
    one.expected = recorded.expected;
    one.sequence = recorded.desired;
    one.record = ledger_.page().begin(ledger_.memory, one.word, recorded,
                                      static_cast<std::uint32_t>(options_.seed * 100 + index_));
    atomics_full_ = one.record == nullptr;
    if (atomics_full_) return begin(at);
  } else {
    const std::size_t place = random_.below(idle_blocks_.size());
    one.block = idle_blocks_[place];
    idle_blocks_[place] = idle_blocks_.back();
    idle_blocks_.pop_back();
    one.buffer = take_buffer();
    if (kind == LoadKind::kWrite) {
      const Stamp stamp = models_[one.block].begin_write();
      one.sequence = stamp.sequence;
      one.kind = kind_of_write(models_[one.block], stamp.sequence);
      write_stamp(buffer(one.buffer), stamp);
      ledger_.page().blocks()[first_ + one.block].issued = stamp.sequence;
    } else {
      std::fill_n(buffer(one.buffer).begin(), kLoadBlockBytes, kPoison);
    }
  }
  one.open = true;
  ledger_.begun(one.kind);
  idle_operations_.erase(std::find(idle_operations_.begin(), idle_operations_.end(), at));
  return true;
}

void LoadWorker::take(Queue& queue, std::size_t at) {
  const Operation& one = operations_[at];
  const std::uint64_t tag = std::uint64_t{one.generation} << 32U | at;
  Ticket taken;
  const std::uint64_t offset = one.block == kNone ? 0 : models_[one.block].offset();
  switch (one.kind) {
    case LoadKind::kRead:
      taken =
          registered_
              ? queue.read(ByteOffset{offset},
                           Target{*registered_, one.buffer * kLoadBlockBytes, kLoadBlockBytes}, tag)
              : queue.read(ByteOffset{offset}, buffer(one.buffer), tag);
      break;
    case LoadKind::kWrite:
    case LoadKind::kNotify:
    case LoadKind::kZeroes: taken = take_write(queue, one, tag); break;
    case LoadKind::kSwap:
      taken = queue.compare_swap(ByteOffset{one.word}, one.expected, one.sequence, tag);
      break;
    case LoadKind::kAdd: taken = queue.fetch_add(ByteOffset{one.word}, one.expected, tag); break;
  }
  if (!taken) ledger_.violation("a queue that is not full did not take an operation");
}

LoadKind LoadWorker::kind_of_write(const BlockModel& model, std::uint64_t sequence) const {
  if (!options_.varied) return LoadKind::kWrite;
  if (model.is_zeroes(sequence)) return LoadKind::kZeroes;
  return model.turn(sequence) % kNotifyEach == 0 ? LoadKind::kNotify : LoadKind::kWrite;
}

Ticket LoadWorker::take_write(Queue& queue, const Operation& one, std::uint64_t tag) {
  const ByteOffset to{models_[one.block].offset()};
  if (one.kind == LoadKind::kZeroes) return queue.write_zeroes(to, kLoadBlockBytes, tag);
  const Source from = registered_
                          ? Source{*registered_, one.buffer * kLoadBlockBytes, kLoadBlockBytes}
                          : Source{buffer(one.buffer)};
  if (one.kind == LoadKind::kWrite) return queue.write(to, from, tag);
  return queue.write_notify(to, from, static_cast<std::uint32_t>(one.sequence), tag);
}

Status LoadWorker::carry_out_write(const Region& region, const Operation& one) {
  const ByteOffset to{models_[one.block].offset()};
  switch (one.kind) {
    case LoadKind::kZeroes: return region.write_zeroes(to, kLoadBlockBytes, options_.deadline);
    case LoadKind::kNotify:
      return region.write_notify(to, buffer(one.buffer), static_cast<std::uint32_t>(one.sequence),
                                 options_.deadline);
    default: return region.write(to, buffer(one.buffer), options_.deadline);
  }
}

void LoadWorker::complete(const Completion& completion) {
  const std::size_t at = completion.tag() & 0xffffffffU;
  if (at >= operations_.size()) return ledger_.violation("I2: a tag that was never given");
  Operation& one = operations_[at];
  if (!one.open || one.generation != completion.tag() >> 32U)
    return ledger_.violation("I2: an operation ended twice");
  const bool done = completion.ok();
  const bool atomic = one.record != nullptr;
  finish(one, done ? ok_status() : Status{completion.error()},
         done && atomic ? completion.old_value() : 0);
}

void LoadWorker::carry_out(const Region& region) {
  if (!begin(0)) return;
  Operation& one = operations_[0];
  const std::uint64_t offset = one.block == kNone ? 0 : models_[one.block].offset();
  one.submitted = Clock::now();
  switch (one.kind) {
    case LoadKind::kRead:
      return finish(one, region.read(ByteOffset{offset}, buffer(one.buffer), options_.deadline), 0);
    case LoadKind::kWrite:
    case LoadKind::kNotify:
    case LoadKind::kZeroes: return finish(one, carry_out_write(region, one), 0);
    case LoadKind::kSwap:
    case LoadKind::kAdd: break;
  }
  const auto found = one.kind == LoadKind::kAdd
                         ? region.fetch_add(ByteOffset{one.word}, one.expected, options_.deadline)
                         : region.compare_swap(ByteOffset{one.word}, one.expected, one.sequence,
                                               options_.deadline);
  finish(one, found ? ok_status() : Status{found.error()}, found ? *found : 0);
}

void LoadWorker::finish(Operation& operation, const Status& status, std::uint64_t old_value) {
  if (status) all_failed_ = false;
  // Before what follows: that is our own time.
  ledger_.ended(operation.kind, status, operation.submitted);
  if (operation.record != nullptr)
    finish_atomic(operation, status, old_value);
  else
    finish_block(operation, status);
  operation.open = false;
  idle_operations_.push_back(static_cast<std::size_t>(&operation - operations_.data()));
  if (status) return;
  const Code code = status.error().code();
  if (code == Code::kAccessRefused || code == Code::kStaleRegion) ledger_.session_over();
}

void LoadWorker::finish_atomic(Operation& operation, const Status& status,
                               std::uint64_t old_value) {
  if (status) {
    const bool swapped = operation.kind == LoadKind::kSwap && old_value == operation.expected;
    last_seen_.at(operation.word / kLoadWordStride) = swapped ? operation.sequence : old_value;
    return LoadPage::end(*operation.record, Effect::kDone, old_value);
  }
  switch (status.error().code()) {
    case Code::kTimedOut:
    case Code::kConnectionLost:
    case Code::kStaleRegion:
    case Code::kAccessRefused: return LoadPage::end(*operation.record, Effect::kNone);
    default: return LoadPage::end(*operation.record, Effect::kUnknown);
  }
}

void LoadWorker::finish_block(Operation& operation, const Status& status) {
  BlockModel& model = models_[operation.block];
  const std::span<std::byte> bytes = buffer(operation.buffer);
  if (operation.kind == LoadKind::kRead) {
    if (status) look_at(operation.block, bytes, "read");
  } else {
    // From here on it must not be read: what reached the region later would not be whole.
    std::fill(bytes.begin(), bytes.end(), kScribble);
    if (status) {
      model.acknowledged(operation.sequence);
      ledger_.page().blocks()[first_ + operation.block].acknowledged = operation.sequence;
    } else if (const Code code = status.error().code(); code != Code::kTimedOut &&
                                                        code != Code::kConnectionLost &&
                                                        code != Code::kStaleRegion) {
      model.indeterminate(operation.sequence);
    }
  }
  rest(operation.buffer);
  idle_blocks_.push_back(operation.block);
}

void LoadWorker::look_at(std::size_t block, std::span<const std::byte> bytes, const char* when) {
  ledger_.checked_block();
  const BlockVerdict verdict = models_[block].check(bytes);
  if (verdict == BlockVerdict::kIntact) return;
  ledger_.violation("I1: " + std::string{to_string(verdict)} + " (" + when +
                    "): " + models_[block].describe(bytes));
}

std::size_t LoadWorker::take_buffer() {
  const Resting next = resting_.front();
  resting_.pop_front();
  if (crc32c(buffer(next.index)) != next.sum)
    ledger_.violation("I4: a buffer changed after its operation had ended");
  return next.index;
}

void LoadWorker::rest(std::size_t index) { resting_.push_back({index, crc32c(buffer(index))}); }

/// No more than the load's rate, in small steps.
void LoadWorker::pace() {
  const std::uint64_t share =
      std::max<std::uint64_t>(1, options_.rate / (options_.queue_workers + options_.sync_workers));
  paced_ += std::max<std::size_t>(1, idle_operations_.size());
  const auto due = pace_from_ + std::chrono::nanoseconds{paced_ * 1'000'000'000 / share};
  const auto now = Clock::now();
  // What a fault has held up is not made up for.
  if (due + std::chrono::milliseconds{100} < now) {
    pace_from_ = now;
    paced_ = 0;
  }
  while (!ledger_.over() && Clock::now() < due)
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(due - Clock::now(), std::chrono::milliseconds{10}));
}

}  // namespace remora::fault
