#pragma once

/// The objects behind each opaque pointer.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <remora/c/administration.h>
#include <remora/c/engine.h>
#include <remora/c/memory.h>
#include <remora/c/queue.h>
#include <remora/c/region.h>
#include <remora/c/server.h>
#include <remora/c/session.h>
#include <remora/c/volume.h>
#include <remora/engine/administration.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/engine/server.h>
#include <remora/owned.h>
#include <remora/volume/volume.h>

#include "call.h"
#include "handle.h"

namespace remora::c {

/// A handle that holds one object of the engine, and nothing else.
template <Kind kOf, typename Object>
struct Holder : Handle {
  static constexpr auto kKind = kOf;
  explicit Holder(Object&& made) noexcept : Handle{kKind}, object{std::move(made)} {}
  Object object;
};

}  // namespace remora::c

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's
struct remora_engine : remora::c::Holder<remora::c::Kind::kEngine, remora::Engine> {
  static constexpr remora::Operation kName{"remora_engine"};
  using Holder::Holder;
};

struct remora_session : remora::c::Holder<remora::c::Kind::kSession, remora::Session> {
  static constexpr remora::Operation kName{"remora_session"};
  using Holder::Holder;
};

struct remora_region : remora::c::Holder<remora::c::Kind::kRegion, remora::Region> {
  static constexpr remora::Operation kName{"remora_region"};
  using Holder::Holder;
};

struct remora_memory : remora::c::Handle {
  static constexpr auto kKind = remora::c::Kind::kMemory;
  static constexpr remora::Operation kName{"remora_memory"};
  explicit remora_memory(remora::RegisteredMemory&& made) noexcept
      : Handle{kKind},
        memory{std::move(made)},
        base{memory.bytes().data()},
        length{memory.bytes().size()},
        local{remora::Target{memory, 0, 0}.memory()} {}
  remora::RegisteredMemory memory;
  /// The fields that queues read: one cache line.
  std::byte* base;
  std::size_t length;
  remora::detail::LocalMemory* local;
  std::uint32_t made_in = remora::detail::made_here();
};

struct remora_slots : remora::c::Handle {
  static constexpr auto kKind = remora::c::Kind::kSlots;
  static constexpr remora::Operation kName{"remora_slots"};
  explicit remora_slots(remora::SlotPool&& made);

  std::shared_ptr<remora::SlotPool> pool;
  std::byte* base = nullptr;  ///< of the first slot
  std::size_t stride_bytes = 0;
  std::vector<remora::Slot> out;  ///< by index; empty while the slot is in the pool
  struct Free {
    void operator()(remora_memory* handle) const noexcept { remora::c::free_handle(handle); }
  };
  std::unique_ptr<remora_memory, Free> memory;
};

struct remora_region_list
    : remora::c::Holder<remora::c::Kind::kRegionList, std::vector<remora::RegionInfo>> {
  static constexpr remora::Operation kName{"remora_region_list"};
  using Holder::Holder;
};

struct remora_session_list
    : remora::c::Holder<remora::c::Kind::kSessionList, std::vector<remora::SessionInfo>> {
  static constexpr remora::Operation kName{"remora_session_list"};
  using Holder::Holder;
};

struct remora_server : remora::c::Holder<remora::c::Kind::kServer, remora::Server> {
  static constexpr remora::Operation kName{"remora_server"};
  using Holder::Holder;
};

struct remora_view : remora::c::Holder<remora::c::Kind::kView, remora::RegionView> {
  static constexpr remora::Operation kName{"remora_view"};
  using Holder::Holder;
};

struct remora_volume : remora::c::Holder<remora::c::Kind::kVolume, remora::volume::Volume> {
  static constexpr remora::Operation kName{"remora_volume"};
  using Holder::Holder;
};
// NOLINTEND(readability-identifier-naming)

namespace remora::c {

/// The bytes of an operation: those of `memory` where it is given. Bytes outside of it make the
/// operation fail with kOutOfRange.
[[nodiscard, gnu::always_inline]] inline Target target_of(void* data, std::size_t length,
                                                          const remora_memory* memory) noexcept {
  auto* const bytes = static_cast<std::byte*>(data);
  if (memory == nullptr) return std::span<std::byte>{bytes, length};
  return {memory->memory, static_cast<std::size_t>(bytes - memory->memory.bytes().data()), length};
}
[[nodiscard, gnu::always_inline]] inline Source source_of(const void* data, std::size_t length,
                                                          const remora_memory* memory) noexcept {
  const auto* const bytes = static_cast<const std::byte*>(data);
  if (memory == nullptr) return std::span<const std::byte>{bytes, length};
  return {memory->memory, static_cast<std::size_t>(bytes - memory->memory.bytes().data()), length};
}

/// A piece has the layout of the engine's piece.
static_assert(sizeof(remora_piece) == sizeof(Target) && alignof(remora_piece) == alignof(Target));
static_assert(sizeof(remora_piece) == sizeof(Source) && alignof(remora_piece) == alignof(Source));
static_assert(std::is_trivially_copyable_v<Target> && std::is_trivially_copyable_v<Source>);
[[nodiscard]] inline std::span<const Target> targets(const remora_piece* pieces,
                                                     std::size_t count) noexcept {
  return {reinterpret_cast<const Target*>(pieces), count};
}
[[nodiscard]] inline std::span<const Source> sources(const remora_piece* pieces,
                                                     std::size_t count) noexcept {
  return {reinterpret_cast<const Source*>(pieces), count};
}

/// Conversions that several sources share.
Result<Rights> to_rights(std::uint32_t rights, Operation operation);
[[nodiscard]] inline QueueOptions to_queue_options(const remora_queue_options& given) noexcept {
  QueueOptions to;
  if (given.depth != 0) to.depth = given.depth;
  to.deadline = duration(given.deadline_ns);
  return to;
}
[[nodiscard]] remora_region_info to_info(const RegionInfo& info) noexcept;
/// Fills `to`, unless it is null, or hands on the error.
Status give_info(const Result<RegionInfo>& info, remora_region_info* to) noexcept;
Result<RegionSpec> to_spec(const remora_region_spec& spec, Operation operation);
Result<Removal> to_removal(int removal, Operation operation);

}  // namespace remora::c
