#pragma once

/// An open volume: the regions of its groups, and its synchronous operations.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/engine.h>
#include <remora/engine/engine_share.h>
#include <remora/engine/region.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/volume.h>
#include <remora/volume/volume_options.h>

#include "kept_queues.h"
#include "stripe_map.h"
#include "volume_metrics.h"

namespace remora::volume::detail {

class MirrorVolume;

/// The member of a group.
struct OpenMember {
  std::string server{};          ///< its name in the cluster
  std::string region{};          ///< the name of its region
  std::optional<Error> error{};  ///< why it is not open
};

/// Does not change once it is open, but for the events that were reported. Thread-safe.
class VolumeCore {
 public:
  /// `regions` and `members`: one for each group of the map. A region that is not open holds no
  /// grant. `metrics`: shows the volume, whose records have `revision`, as long as it exists; null:
  /// no series.
  VolumeCore(VolumeRecord record, const StripeMap& map, std::vector<Region> regions,
             std::vector<OpenMember> members, VolumeOptions options,
             std::shared_ptr<VolumeMetrics> metrics = nullptr, std::uint64_t revision = 0);
  /// Of a mirror. Its map holds no byte and it has no regions, so that operations on a striped
  /// volume do not ask which kind it is: those on a mirror find that the map does not hold them.
  /// `engine`: for requests to servers that are not the volume's; without one repair_claimed() is
  /// refused.
  VolumeCore(VolumeRecord record, std::unique_ptr<MirrorVolume> mirror, VolumeOptions options,
             std::shared_ptr<VolumeMetrics> metrics = nullptr,
             std::optional<remora::detail::EngineShare> engine = std::nullopt);
  ~VolumeCore();
  VolumeCore(const VolumeCore&) = delete;
  VolumeCore& operator=(const VolumeCore&) = delete;

  /// Null: it is striped.
  [[nodiscard]] MirrorVolume* mirror() const noexcept { return mirror_.get(); }
  /// That has opened a mirror.
  [[nodiscard]] const std::optional<remora::detail::EngineShare>& engine() const noexcept {
    return engine_;
  }
  [[nodiscard]] const VolumeRecord& record() const noexcept { return record_; }
  [[nodiscard]] const StripeMap& map() const noexcept { return map_; }
  [[nodiscard]] const VolumeOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Region& region(std::uint32_t group) const noexcept { return regions_[group]; }
  [[nodiscard]] const std::vector<Region>& regions() const noexcept { return regions_; }
  [[nodiscard]] const OpenMember& member(std::uint32_t group) const noexcept {
    return members_[group];
  }
  [[nodiscard]] std::vector<GroupState> groups() const;
  [[nodiscard]] GroupHealth health(std::uint32_t group) const noexcept;
  /// How many groups have that health.
  [[nodiscard]] std::size_t count(GroupHealth wanted) const noexcept;

  Status read(ByteOffset from, const Target& into, std::chrono::nanoseconds deadline) noexcept;
  Status write(ByteOffset to, const Source& from, std::chrono::nanoseconds deadline) noexcept;
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                      std::chrono::nanoseconds deadline) noexcept;
  Status flush_visible(std::chrono::nanoseconds deadline) noexcept;
  Status settled(std::chrono::nanoseconds deadline) noexcept;
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline) noexcept;
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline) noexcept;

  /// `error` of an operation on `group`, with the names of volume, group and member and the
  /// operation's place in the volume. Reports it as an event, if it is one.
  [[nodiscard, gnu::cold, gnu::noinline]] Error named(const Error& error, std::uint32_t group,
                                                      ByteOffset at,
                                                      std::uint64_t length_bytes) noexcept;
  /// The error of an operation that is not within the volume.
  [[nodiscard, gnu::cold, gnu::noinline]] Error outside(Operation operation, ByteOffset at,
                                                        std::uint64_t length_bytes) const noexcept;
  /// The error of an atomic that is not on an aligned word of the volume.
  [[nodiscard, gnu::cold, gnu::noinline]] Error no_word(Operation operation,
                                                        ByteOffset at) const noexcept;
  /// The error of an operation on a group that is not open, or whose session has ended.
  [[nodiscard, gnu::cold, gnu::noinline]] Error why_closed(std::uint32_t group, ByteOffset at,
                                                           std::uint64_t length_bytes) noexcept;
  /// The engine's answer to a transfer of no bytes: its reason depends on the local memory.
  [[nodiscard, gnu::cold, gnu::noinline]] Error refuse_empty(const Target& into) noexcept;
  [[nodiscard, gnu::cold, gnu::noinline]] Error refuse_empty(const Source& from) noexcept;
  [[nodiscard, gnu::cold, gnu::noinline]] Error refuse_no_zeroes() noexcept;
  /// "scratch, group 3, member s1".
  [[nodiscard]] std::string name_of(std::uint32_t group) const;
  /// Notes the event for health(). Calls the handler, if it is the first of that kind for the
  /// group.
  void report(VolumeEventKind kind, std::uint32_t group, const Error& error) noexcept;

 private:
  [[nodiscard]] std::chrono::nanoseconds limit(std::chrono::nanoseconds deadline) const noexcept {
    return deadline.count() != 0 ? deadline : options_.operation_deadline;
  }
  /// When an operation of the mirror with that deadline ends.
  [[nodiscard]] std::chrono::steady_clock::time_point until(
      std::chrono::nanoseconds deadline) const noexcept;
  /// A group that is open; 0 if none is.
  [[nodiscard]] std::uint32_t any_open() const noexcept;
  /// Calls an operation of the mirror. Only if there is one.
  template <typename Call>
  [[gnu::cold, gnu::noinline]] auto on_mirror(const Call& call) noexcept -> decltype(call());
  template <typename Take>
  [[gnu::noinline]] Status run_queued(std::chrono::nanoseconds deadline, const Take& take) noexcept;

  const VolumeRecord record_;
  const StripeMap map_;
  const std::vector<Region> regions_;
  const std::vector<OpenMember> members_;
  const VolumeOptions options_;
  /// Bits by VolumeEventKind, for each group.
  const std::unique_ptr<std::atomic<std::uint8_t>[]> reported_;
  KeptQueues kept_;  ///< they use the regions
  const std::shared_ptr<VolumeMetrics> metrics_;
  const std::unique_ptr<MirrorVolume> mirror_;
  const std::optional<remora::detail::EngineShare> engine_;
};

}  // namespace remora::volume::detail
