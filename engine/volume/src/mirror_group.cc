/// Writes, reads and atomics. mirror_group_together.cc has several at once, mirror_group_copy.cc
/// repair, copies and clearing.

#include "mirror_group.h"

#include <new>
#include <span>
#include <thread>
#include <utility>

namespace remora::volume::detail {

namespace {

Error past_deadline(Operation operation) { return Error{Code::kTimedOut, operation}; }

}  // namespace

MirrorGroup::MirrorGroup(GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
                         std::uint64_t group_bytes, std::unique_ptr<ZoneLocks> locks,
                         const MirrorOptions& options, MemberOpener& opener)
    : options_{options},
      group_bytes_{group_bytes},
      data_offset_{mirror_data_offset(group_bytes)},
      control_{std::move(key), members, options, opener},
      locks_{std::move(locks)},
      bitmap_{detail::zone_count(group_bytes),
              [this](std::uint32_t word, std::uint64_t value) { return write_word(word, value); }},
      unresolved_{detail::zone_count(group_bytes)},
      recent_{detail::zone_count(group_bytes)},
      uncopied_{detail::zone_count(group_bytes)} {}

Result<std::unique_ptr<MirrorGroup>> MirrorGroup::create(
    GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
    std::uint64_t group_bytes, const MirrorOptions& options, MemberOpener& opener) {
  auto locks = ZoneLocks::create(detail::zone_count(group_bytes));
  if (!locks) return locks.error();
  return std::unique_ptr<MirrorGroup>{
      new MirrorGroup{std::move(key), members, group_bytes, std::move(*locks), options, opener}};
}

Error MirrorGroup::in_doubt(const Error& error) {
  if (error.code() == Code::kProvider || error.code() == Code::kInvalidArgument) return error;
  return Error{Code::kIndeterminate, "write"}
      .with_reason(error.reason())
      .with_subject(error.subject())
      .with_server(error.server());
}

Status MirrorGroup::carry_out(std::span<const MemberWrite> writes, WriteProgress& progress,
                              Time until) {
  while (true) {
    const GroupRoles roles = control_.roles();
    if (!roles.may_post) {
      if (const Status done = control_.converge(until); !done) return done;
      continue;
    }
    const MemberSet next = progress.next(roles);
    if (next.empty()) return {};
    if (Time::clock::now() >= until) return past_deadline("write");
    if (!next.both(control_.unsettled()).empty()) {
      if (const Status done = control_.settle(next, until); !done) return done;
      continue;
    }
    MemberSlots::Outcomes outcomes;
    progress.posted();
    control_.slots().write_together(next, writes, outcomes);
    MemberSet failed;
    next.for_each([&](std::size_t slot) {
      if (outcomes.at(slot))
        progress.done(slot);
      else
        failed = failed.with(MemberSet::of(slot));
    });
    if (failed.empty()) continue;
    if (const Status done = control_.members_failed(failed, outcomes, until); !done) return done;
  }
}

/// All operations of the bitmap's words end by themselves: their own time is that of a member.
Status MirrorGroup::write_word(std::uint32_t word, std::uint64_t value) {
  const Time until = Time::clock::now() + 2 * options_.member_limit;
  WriteProgress progress{Spread::kAtOnce};
  const MemberWrite write{.offset_bytes = word_offset(word),
                          .from = std::as_bytes(std::span{&value, 1})};
  try {
    return carry_out(write, progress, until);
  } catch (const std::bad_alloc&) {  // no memory for a record: the bitmap must know of it
    return Error{Code::kOutOfMemory, "mark of a zone"};
  }
}

Status MirrorGroup::hold_range(ZoneLocks::Hold& hold, std::uint64_t offset_bytes,
                               std::uint64_t length_bytes, bool shared, Time until) {
  const std::uint32_t zone = zone_of(offset_bytes);
  while (true) {
    if (!hold.lock(zone, offset_bytes, offset_bytes + length_bytes, shared, until))
      return past_deadline("lock of a zone");
    if (!unresolved_.has(zone)) return {};
    hold.release();
    if (const Status done = resolve(zone, until); !done) return done;
  }
}

/// Rule 20: waits with nothing in flight and without its range, so that zones can be resolved.
Status MirrorGroup::acknowledge(std::span<const MemberWrite> writes, Time until) {
  if (control_.roles().may_acknowledge) return {};
  Status done;
  {
    const OperationGate::Parking parked{control_.gate()};
    try {
      done = control_.await_acknowledgement(until);
    } catch (const std::bad_alloc&) {  // no memory for the text of its error
      done = Error{Code::kOutOfMemory, "write"};
    }
    if (!done) set_unresolved(writes);
  }
  if (!done) return options_.metrics->write_failed(in_doubt(done.error()));
  return {};
}

void MirrorGroup::set_unresolved(std::span<const MemberWrite> writes) {
  for (const MemberWrite& write : writes) unresolved_.set(zone_of(write));
}

Status MirrorGroup::mark(std::span<const MemberWrite> writes, Time until) {
  for (const MemberWrite& write : writes) {
    const std::uint32_t zone = zone_of(write);
    if (!recent_.has(zone)) recent_.set(zone);
    const Status marked = bitmap_.mark(zone, until);
    if (marked) continue;
    // No data was posted: without effect, whatever has become of the mark.
    if (marked.error().code() == Code::kIndeterminate) return past_deadline("mark of a zone");
    return marked;
  }
  return {};
}

Status MirrorGroup::carry_out_data(std::span<const MemberWrite> writes, WriteProgress& progress,
                                   Time until) {
  Status done;
  try {
    done = carry_out(writes, progress, until);
  } catch (const std::bad_alloc&) {  // no memory for a record
    done = Error{Code::kOutOfMemory, "write"};
  }
  if (done || !progress.was_posted()) return done;
  set_unresolved(writes);
  return in_doubt(done.error());
}

Status MirrorGroup::write_held(const MemberWrite& write, ZoneLocks::Hold& hold, Time until) {
  const std::span writes{&write, 1};
  Status done = mark(writes, until);
  if (done) {
    WriteProgress progress{spread()};
    done = carry_out_data(writes, progress, until);
  }
  hold.release();
  if (done) return acknowledge(writes, until);
  return options_.metrics->write_failed(done.error());
}

Status MirrorGroup::write_range(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                const Source& from, Time until) {
  const GateEntry inside{control_.gate(), until};
  if (!inside) return past_deadline("write");
  ZoneLocks::Hold hold{*locks_};
  if (const Status held = hold_range(hold, offset_bytes, length_bytes, false, until); !held)
    return held;
  return write_held(member_write(offset_bytes, length_bytes, from), hold, until);
}

Status MirrorGroup::write(std::uint64_t offset_bytes, const Source& from, Time until) {
  return write_range(offset_bytes, from.bytes().size(), from, until);
}

Status MirrorGroup::write_zeroes(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                 Time until) {
  return write_range(offset_bytes, length_bytes, Source{std::span<const std::byte>{}}, until);
}

/// Rule 23. kWouldBlock: the group is promoting. Does not wait for that: the caller may hold a
/// range, and promotions wait for ranges.
Status MirrorGroup::read_primary(std::span<const MemberRead> reads, Time until) {
  constexpr std::chrono::milliseconds kPause{10};
  Status last = past_deadline("read");
  while (true) {
    if (control_.roles().promoting) return Error{Code::kWouldBlock, "read"};
    if (Time::clock::now() >= until) return last;
    if (!control_.is_confirmed()) {
      if (const Status done = control_.confirm(until); !done) {
        if (done.error().code() == Code::kAccessRefused) return done;  // the claim is lost
        last = done;
        std::this_thread::sleep_for(kPause);  // the store does not answer
      }
      continue;
    }
    const std::uint64_t before = control_.changes();
    const GroupRoles roles = control_.roles();
    if (roles.promoting) continue;
    control_.note_read();
    const Status done = control_.slots().at(roles.primary).read_all(reads);
    if (!done) {
      last = done;
      const Status handled = control_.member_failed(roles.primary, done.error(), until);
      if (!handled) return handled;
      continue;
    }
    if (before == control_.changes() && control_.is_confirmed()) return {};
    options_.metrics->read_repeated();
  }
}

Status MirrorGroup::read(std::uint64_t offset_bytes, const Target& into, Time until) {
  while (true) {
    if (const Status ready = control_.await_readable(until); !ready) return ready;
    const GateEntry inside{control_.read_gate(), until};
    if (!inside) return past_deadline("read");
    ZoneLocks::Hold hold{*locks_};
    // Rule 24: what one member has is not read before all have it.
    if (exclusive_.load(std::memory_order_acquire)) {
      const Status held = hold_range(hold, offset_bytes, into.bytes().size(), true, until);
      if (!held) return held;
    }
    const MemberRead read{.offset_bytes = data_offset_ + offset_bytes, .into = into};
    const Status done = read_primary(std::span{&read, 1}, until);
    if (done || done.error().code() != Code::kWouldBlock) return done;
  }
}

/// `compute` changes the value that was read; false: nothing is to be written. After a fail-over
/// the same value is written: it is not computed again.
template <typename Compute>
Result<std::uint64_t> MirrorGroup::change_word(std::uint64_t offset_bytes, Time until,
                                               const Compute& compute) {
  while (true) {
    const GateEntry inside{control_.gate(), until};
    if (!inside) return past_deadline("atomic");
    ZoneLocks::Hold hold{*locks_};
    std::uint64_t value = 0;
    if (const Status held = hold_range(hold, offset_bytes, sizeof value, false, until); !held)
      return held.error();
    const MemberRead word{.offset_bytes = data_offset_ + offset_bytes,
                          .into = std::as_writable_bytes(std::span{&value, 1})};
    const Status read = read_primary(std::span{&word, 1}, until);
    if (!read && read.error().code() == Code::kWouldBlock) continue;
    if (!read) return read.error();
    std::uint64_t next = value;
    if (!compute(next)) return value;
    const MemberWrite write{.offset_bytes = data_offset_ + offset_bytes,
                            .from = std::as_bytes(std::span{&next, 1})};
    const Status written = write_held(write, hold, until);
    if (!written) return written.error();
    return value;
  }
}

Result<std::uint64_t> MirrorGroup::compare_swap(std::uint64_t offset_bytes, std::uint64_t expected,
                                                std::uint64_t desired, Time until) {
  return change_word(offset_bytes, until, [&](std::uint64_t& value) {
    const bool swaps = value == expected;
    if (swaps) value = desired;
    return swaps;
  });
}

Result<std::uint64_t> MirrorGroup::fetch_add(std::uint64_t offset_bytes, std::uint64_t delta,
                                             Time until) {
  return change_word(offset_bytes, until, [&](std::uint64_t& value) {
    value += delta;
    return true;
  });
}

}  // namespace remora::volume::detail
