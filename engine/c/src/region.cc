// Opening regions, and the synchronous operations.

#include <cstddef>
#include <cstdint>

#include "call.h"
#include "handles.h"
#include "outcomes.h"

namespace remora::c {

Result<Rights> to_rights(std::uint32_t rights, Operation operation) {
  if (rights > REMORA_RIGHT_ALL)
    return Error{Code::kInvalidArgument, operation}.with_subject("rights").with_limit(
        rights, REMORA_RIGHT_ALL);
  return static_cast<Rights>(rights);
}

namespace {

/// Opens a region. `open` takes the rights.
template <typename Open>
int open_by_uri(Call call, const remora_engine* engine, const char* uri, std::uint32_t rights,
                remora_region** region, const Open& open) noexcept {
  return call.on(engine).text(uri, "uri").into(region, "region").run([&]() -> Status {
    const auto asked = to_rights(rights, call.operation());
    if (!asked) return asked.error();
    return make_handle(open(*asked), region);
  });
}

/// Checks the arguments of a call with many pairs, and makes the call. `body` has the options.
template <typename Pair, typename Body>
int run_many(Call& call, const remora_region* region, Pair* pairs, std::size_t count,
             remora_pair_outcome* each, std::uint64_t deadline_ns, const Body& body) noexcept {
  call.on(region);
  if (count != 0) call.into(pairs, "pairs");
  if (each != nullptr) call.into(each, "each");
  return call.run([&] {
    // A count beyond the bound may have no array of this length.
    const Outcomes outcomes{each, count > REMORA_PAIRS_MAX ? 0 : count};
    outcomes.mark();
    const Status status =
        body(ManyOptions{.deadline = duration(deadline_ns), .each = outcomes.for_engine()});
    outcomes.finish(status);
    return status;
  });
}

}  // namespace
}  // namespace remora::c

using remora::ByteOffset;
using remora::Status;
using remora::c::Call;
using remora::c::duration;
using remora::c::is_live;

int remora_engine_open_region(const remora_engine* engine, const char* uri, uint32_t rights,
                              remora_region** region, remora_error* error) noexcept {
  return remora::c::open_by_uri(
      {"remora_engine_open_region", error}, engine, uri, rights, region,
      [&](remora::Rights asked) { return engine->object.open_region(uri, asked); });
}

int remora_engine_fence_region(const remora_engine* engine, const char* uri, uint32_t rights,
                               remora_region** region, remora_error* error) noexcept {
  return remora::c::open_by_uri(
      {"remora_engine_fence_region", error}, engine, uri, rights, region,
      [&](remora::Rights asked) { return engine->object.fence_region(uri, asked); });
}

void remora_region_free(remora_region* region) noexcept { remora::c::free_handle(region); }

int remora_region_info_of(const remora_region* region, remora_region_info* info,
                          remora_error* error) noexcept {
  return Call{"remora_region_info_of", error}.on(region).fills(info, "info").run([&]() -> Status {
    remora::c::fill(info, remora::c::to_info(region->object.info()));
    return {};
  });
}

uint64_t remora_region_size_bytes(const remora_region* region) noexcept {
  return is_live(region) ? region->object.size_bytes() : 0;
}
uint32_t remora_region_rights(const remora_region* region) noexcept {
  return is_live(region) ? static_cast<std::uint32_t>(region->object.rights()) : 0;
}
int remora_region_transport(const remora_region* region) noexcept {
  return is_live(region) ? static_cast<int>(region->object.transport()) : REMORA_TRANSPORT_AUTO;
}
const char* remora_region_transport_reason(const remora_region* region) noexcept {
  return is_live(region) ? region->object.transport_reason().c_str() : "";
}
int remora_region_connected(const remora_region* region) noexcept {
  return is_live(region) && region->object.connected() ? 1 : 0;
}

int remora_region_settled(const remora_region* region, uint64_t deadline_ns,
                          remora_error* error) noexcept {
  return Call{"remora_region_settled", error}.on(region).run(
      [&] { return region->object.settled(duration(deadline_ns)); });
}

int remora_region_fence(const remora_region* region, remora_region** fenced,
                        remora_error* error) noexcept {
  return Call{"remora_region_fence", error}.on(region).into(fenced, "fenced").run([&] {
    return remora::c::make_handle(region->object.fence(), fenced);
  });
}

int remora_region_reopen(const remora_region* region, remora_region** reopened, int* same_contents,
                         remora_error* error) noexcept {
  Call call{"remora_region_reopen", error};
  call.on(region).into(reopened, "reopened");
  if (same_contents != nullptr) call.into(same_contents, "same_contents");
  return call.run([&]() -> Status {
    auto again = region->object.reopen();
    if (!again) return again.error();
    const Status made =
        remora::c::make_handle(remora::Result<remora::Region>{std::move(again->region)}, reopened);
    if (made && same_contents != nullptr) *same_contents = again->same_contents ? 1 : 0;
    return made;
  });
}

int remora_region_read(const remora_region* region, uint64_t offset, void* into, size_t length,
                       const remora_memory* memory, uint64_t deadline_ns,
                       remora_error* error) noexcept {
  return Call{"remora_region_read", error}.on(region).on_any(memory).run([&] {
    return region->object.read(ByteOffset{offset}, remora::c::target_of(into, length, memory),
                               duration(deadline_ns));
  });
}

int remora_region_write(const remora_region* region, uint64_t offset, const void* from,
                        size_t length, const remora_memory* memory, uint64_t deadline_ns,
                        remora_error* error) noexcept {
  return Call{"remora_region_write", error}.on(region).on_any(memory).run([&] {
    return region->object.write(ByteOffset{offset}, remora::c::source_of(from, length, memory),
                                duration(deadline_ns));
  });
}

int remora_region_read_pieces(const remora_region* region, uint64_t offset,
                              const remora_piece* pieces, size_t count, uint64_t deadline_ns,
                              remora_error* error) noexcept {
  return Call{"remora_region_read_pieces", error}.on(region).into(pieces, "pieces").run([&] {
    return region->object.read(ByteOffset{offset}, remora::c::targets(pieces, count),
                               duration(deadline_ns));
  });
}

int remora_region_write_pieces(const remora_region* region, uint64_t offset,
                               const remora_piece* pieces, size_t count, uint64_t deadline_ns,
                               remora_error* error) noexcept {
  return Call{"remora_region_write_pieces", error}.on(region).into(pieces, "pieces").run([&] {
    return region->object.write(ByteOffset{offset}, remora::c::sources(pieces, count),
                                duration(deadline_ns));
  });
}

int remora_region_write_notify(const remora_region* region, uint64_t offset, const void* from,
                               size_t length, const remora_memory* memory, uint32_t notice,
                               uint64_t deadline_ns, remora_error* error) noexcept {
  return Call{"remora_region_write_notify", error}.on(region).on_any(memory).run([&] {
    return region->object.write_notify(ByteOffset{offset},
                                       remora::c::source_of(from, length, memory), notice,
                                       duration(deadline_ns));
  });
}

int remora_region_write_zeroes(const remora_region* region, uint64_t offset, uint64_t length,
                               uint64_t deadline_ns, remora_error* error) noexcept {
  return Call{"remora_region_write_zeroes", error}.on(region).run([&] {
    return region->object.write_zeroes(ByteOffset{offset}, length, duration(deadline_ns));
  });
}

int remora_region_flush_visible(const remora_region* region, uint64_t deadline_ns,
                                remora_error* error) noexcept {
  return Call{"remora_region_flush_visible", error}.on(region).run(
      [&] { return region->object.flush_visible(duration(deadline_ns)); });
}

int remora_region_compare_swap(const remora_region* region, uint64_t offset, uint64_t expected,
                               uint64_t desired, uint64_t* before, uint64_t deadline_ns,
                               remora_error* error) noexcept {
  return Call{"remora_region_compare_swap", error}.on(region).into(before, "before").run([&] {
    return remora::c::give_before(
        region->object.compare_swap(ByteOffset{offset}, expected, desired, duration(deadline_ns)),
        before);
  });
}

int remora_region_fetch_add(const remora_region* region, uint64_t offset, uint64_t delta,
                            uint64_t* before, uint64_t deadline_ns, remora_error* error) noexcept {
  return Call{"remora_region_fetch_add", error}.on(region).into(before, "before").run([&] {
    return remora::c::give_before(
        region->object.fetch_add(ByteOffset{offset}, delta, duration(deadline_ns)), before);
  });
}

int remora_region_read_many(const remora_region* region, const remora_pair* pairs, size_t count,
                            remora_pair_outcome* each, uint64_t deadline_ns,
                            remora_error* error) noexcept {
  Call call{"remora_region_read_many", error};
  return remora::c::run_many(
      call, region, pairs, count, each, deadline_ns, [&](const remora::ManyOptions& options) {
        return region->object.read_many(remora::c::reads(pairs, count), options);
      });
}

int remora_region_write_many(const remora_region* region, const remora_pair* pairs, size_t count,
                             remora_pair_outcome* each, uint64_t deadline_ns,
                             remora_error* error) noexcept {
  Call call{"remora_region_write_many", error};
  return remora::c::run_many(
      call, region, pairs, count, each, deadline_ns, [&](const remora::ManyOptions& options) {
        return region->object.write_many(remora::c::writes(pairs, count), options);
      });
}

int remora_region_fetch_add_many(const remora_region* region, remora_add_pair* pairs, size_t count,
                                 remora_pair_outcome* each, uint64_t deadline_ns,
                                 remora_error* error) noexcept {
  Call call{"remora_region_fetch_add_many", error};
  return remora::c::run_many(
      call, region, pairs, count, each, deadline_ns, [&](const remora::ManyOptions& options) {
        return region->object.fetch_add_many(remora::c::additions(pairs, count), options);
      });
}

int remora_region_compare_swap_many(const remora_region* region, remora_swap_pair* pairs,
                                    size_t count, remora_pair_outcome* each, uint64_t deadline_ns,
                                    remora_error* error) noexcept {
  Call call{"remora_region_compare_swap_many", error};
  return remora::c::run_many(
      call, region, pairs, count, each, deadline_ns, [&](const remora::ManyOptions& options) {
        return region->object.compare_swap_many(remora::c::swaps(pairs, count), options);
      });
}
