#pragma once

/// An open mirror: one address space of its groups.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/engine/engine.h>
#include <remora/engine/engine_share.h>
#include <remora/engine/types.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/volume.h>
#include <remora/volume/volume_options.h>

#include "mirror_reader.h"
#include "mirror_writer.h"
#include "operation_gate.h"
#include "stripe_map.h"

namespace remora::volume::detail {

/// Reads through the claimed writer if this process has claimed the volume, else as any reader.
/// Operations are cut at stripe units and zones; the parts are carried out one after the other.
/// Thread-safe.
class MirrorVolume {
 public:
  /// Opens no member yet. The engine may end before this object. Errors: kProtocol
  /// (records that do not fit each other), kUnsupported (shm), kOutOfMemory.
  static Result<std::unique_ptr<MirrorVolume>> open(const Engine& engine, const Cluster& cluster,
                                                    const VolumeLayout& layout,
                                                    const VolumeOptions& options);
  MirrorVolume(const Engine& engine, const Cluster& cluster, const VolumeLayout& layout,
               const StripeMap& map, const VolumeOptions& options);
  ~MirrorVolume();
  MirrorVolume(const MirrorVolume&) = delete;
  MirrorVolume& operator=(const MirrorVolume&) = delete;

  /// Errors: kAlreadyExists (this handle has claimed it), kStaleRegion (another volume has its name
  /// now), those of MirrorWriter::claim().
  Status claim(const ClaimOptions& options);
  /// Errors: kNotFound (not claimed), those of MirrorWriter::release().
  Status release();
  /// Null: not claimed.
  [[nodiscard]] std::shared_ptr<MirrorWriter> writer() const;

  Status read(ByteOffset from, const Target& into, std::chrono::nanoseconds deadline);
  Status write(ByteOffset to, const Source& from, std::chrono::nanoseconds deadline);
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::chrono::nanoseconds deadline);
  Status flush_visible();
  /// Waits until no zone is unresolved.
  Status settled(std::chrono::nanoseconds deadline);
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline);
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline);
  [[nodiscard]] std::vector<GroupState> groups() const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  [[nodiscard]] Time until(std::chrono::nanoseconds deadline) const noexcept;
  /// Calls `part(place, done, length)` for each part until one fails.
  template <typename Part>
  Status for_each_part(Operation operation, ByteOffset at, std::uint64_t length_bytes,
                       const Part& part) const;
  /// Calls `use(writer)`; an error if there is none.
  template <typename Use>
  Status with_group(Operation operation, std::uint32_t group, Time until, const Use& use);
  template <typename Change>
  Result<std::uint64_t> change_word(Operation operation, ByteOffset at,
                                    std::chrono::nanoseconds deadline, const Change& change);
  [[nodiscard]] Error named(const Error& error, std::uint32_t group, ByteOffset at,
                            std::uint64_t length_bytes) const;
  [[nodiscard]] Error outside(Operation operation, ByteOffset at, std::uint64_t length_bytes) const;

  const remora::detail::EngineShare engine_;
  const Cluster cluster_;
  const VolumeLayout layout_;
  const StripeMap map_;
  const VolumeOptions options_;
  MirrorReader reader_;
  /// Closed while the writer changes, so that operations need no lock to use it.
  mutable OperationGate use_;
  mutable remora::detail::Mutex claiming_;  ///< held while the volume is claimed or released
  std::shared_ptr<MirrorWriter> writer_;    ///< changes with the gate closed and quiet
};

}  // namespace remora::volume::detail
