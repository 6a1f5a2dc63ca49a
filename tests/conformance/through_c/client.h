#pragma once

/// The client through the C API: engines, sessions and regions with the names and functions of the
/// C++ ones, as far as the suite uses them. So the same tests run through libremora.so.0. The types
/// of parameters and results (RegionSpec, EngineOptions, Error, ...) are those of C++.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/remora_c.h>
#include <remora/result.h>

#include "through_c/memory.h"
#include "through_c/queue.h"

namespace remora::through_c {

struct ReopenedRegion;

class Region {
 public:
  explicit Region(remora_region* region);

  [[nodiscard]] const RegionInfo& info() const noexcept;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept;
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return info().block_bytes; }
  [[nodiscard]] std::uint64_t block_count() const noexcept { return size_bytes() / block_bytes(); }
  [[nodiscard]] Rights rights() const noexcept;
  [[nodiscard]] TransportKind transport() const noexcept;
  [[nodiscard]] std::string transport_reason() const;
  [[nodiscard]] bool connected() const noexcept;
  Status settled(std::chrono::nanoseconds deadline) const;
  Result<Region> fence() const;
  Result<ReopenedRegion> reopen() const;
  Result<Queue> queue(const QueueOptions& options = {}) const;

  Status read(ByteOffset from, Target into, std::chrono::nanoseconds deadline = {}) const;
  Status read(Block from, Target into, std::chrono::nanoseconds deadline = {}) const;
  Status read(ByteOffset from, std::span<const Target> into,
              std::chrono::nanoseconds deadline = {}) const;
  Status write(ByteOffset to, Source from, std::chrono::nanoseconds deadline = {}) const;
  Status write(Block to, Source from, std::chrono::nanoseconds deadline = {}) const;
  Status write(ByteOffset to, std::span<const Source> from,
               std::chrono::nanoseconds deadline = {}) const;
  Status write_notify(ByteOffset to, Source from, std::uint32_t notice,
                      std::chrono::nanoseconds deadline = {}) const;
  Status write_zeroes(ByteOffset at, std::uint64_t length,
                      std::chrono::nanoseconds deadline = {}) const;
  Status flush_visible(std::chrono::nanoseconds deadline = {}) const;
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline = {}) const;
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline = {}) const;

  // ManyOptions::each has as many outcomes as there are pairs, or none: C asks for no number.
  Status read_many(std::span<const ReadPair> pairs, const ManyOptions& options = {}) const;
  Status write_many(std::span<const WritePair> pairs, const ManyOptions& options = {}) const;
  Status fetch_add_many(std::span<FetchAddPair> pairs, const ManyOptions& options = {}) const;
  Status compare_swap_many(std::span<CompareSwapPair> pairs, const ManyOptions& options = {}) const;

  [[nodiscard]] const remora_region* handle() const noexcept;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

struct ReopenedRegion {
  Region region;
  bool same_contents = false;
};

class Session {
 public:
  explicit Session(remora_session* session);

  [[nodiscard]] const ServerInfo& server() const noexcept;
  [[nodiscard]] TransportKind transport() const noexcept;
  [[nodiscard]] bool connected() const noexcept;
  Status settled(std::chrono::nanoseconds deadline) const;
  Result<Usage> usage() const;
  Result<RegionInfo> create_region(const RegionSpec& spec) const;
  Result<std::vector<RegionInfo>> regions() const;
  Result<RegionInfo> stat(std::string_view name) const;
  Status remove_region(std::string_view name, Removal removal = Removal::kIfUnused) const;
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes) const;
  Result<std::chrono::nanoseconds> ping() const;
  Result<std::vector<SessionInfo>> sessions() const;
  Status end_session(std::uint64_t id) const;
  Result<DrainState> drain() const;
  Result<DrainState> end_drain() const;
  Result<DrainState> drain_state() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

class Engine {
 public:
  /// Errors: also kUnsupported (options that the C API does not have: a registry, faults).
  static Result<Engine> open(const EngineOptions& options);

  Result<Region> open_region(std::string_view uri, Rights rights) const;
  Result<Region> fence_region(std::string_view uri, Rights rights) const;
  Result<Session> connect(std::string_view uri) const;
  Result<SlotPool> allocate_slots(std::size_t count, std::size_t slot_bytes) const;
  Result<RegisteredMemory> register_memory(std::span<std::byte> bytes) const;

 private:
  /// The engine, and the handlers of its sessions, which the C API calls by address.
  struct State {
    State() = default;
    ~State() { remora_engine_free(engine); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    SessionHandlers handlers;
    remora_engine* engine = nullptr;
  };
  explicit Engine(std::unique_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void on_session(void* context, const remora_session_event* event);
  [[nodiscard]] remora_engine* handle() const noexcept { return state_->engine; }
  std::unique_ptr<State> state_;
};

}  // namespace remora::through_c
