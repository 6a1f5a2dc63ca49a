#pragma once

/// An open mirror: one address space of its groups.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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

#include "group_operation.h"
#include "member_opener.h"
#include "mirror_options.h"
#include "mirror_reader.h"
#include "mirror_writer.h"
#include "operation_gate.h"
#include "stripe_map.h"

namespace remora::volume::detail {

/// Reads through the claimed writer if this process has claimed the volume, else as any reader.
/// Operations are cut at stripe units and zones; the parts are carried out one after the other. A
/// queue (mirror_queue.h) cuts its operations itself.
/// Thread-safe.
class MirrorVolume {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Makes what opens members with these rights: for readers, and for each claim.
  using MakeOpener = std::function<std::shared_ptr<MemberOpener>(Rights rights)>;

  /// Opens no member yet. The engine may end before this object. Errors: kProtocol
  /// (records that do not fit each other), kUnsupported (shm), kOutOfMemory.
  static Result<std::unique_ptr<MirrorVolume>> open(const Engine& engine, const Cluster& cluster,
                                                    const VolumeLayout& layout,
                                                    const VolumeOptions& options);
  /// For open(), and for tests.
  MirrorVolume(MakeOpener make_opener, const Cluster& cluster, const VolumeLayout& layout,
               const StripeMap& map, const MirrorOptions& options);
  ~MirrorVolume();
  MirrorVolume(const MirrorVolume&) = delete;
  MirrorVolume& operator=(const MirrorVolume&) = delete;

  /// Errors: kAlreadyExists (this handle has claimed it), kStaleRegion (another volume has its name
  /// now), those of MirrorWriter::claim().
  Status claim(const ClaimOptions& options);
  /// Errors: kNotFound (not claimed), those of MirrorWriter::release().
  Status release();
  /// Null: not claimed. Waits for no operation: handlers that operations call may ask.
  [[nodiscard]] std::shared_ptr<MirrorWriter> writer() const;

  Status read(ByteOffset from, const Target& into, Time until);
  Status write(ByteOffset to, const Source& from, Time until);
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, Time until);
  Status flush_visible();
  /// Waits until no zone is unresolved. Errors: kTimedOut, also at once after a release that has
  /// left one: the next claim makes its members equal.
  Status settled(std::chrono::nanoseconds deadline);
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     Time until);
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta, Time until);
  [[nodiscard]] std::vector<GroupState> groups() const;

  // For a queue, whose operations are parts that place_of() has cut.
  /// Where the byte is, and how much follows it in its stripe unit and its zone.
  [[nodiscard]] Place place_of(std::uint64_t offset_bytes) const noexcept;
  /// Whether an operation may have these bytes. Errors: kInvalidArgument, kOutOfRange.
  [[nodiscard]] Status check(Operation operation, ByteOffset at, std::uint64_t length_bytes) const;
  /// Whether they are a word. Errors: kOutOfRange, kMisaligned.
  [[nodiscard]] Status check_word(Operation operation, ByteOffset at) const;
  /// At most MemberLane::kOperationsMax operations of one group, carried out together. The errors
  /// need named().
  void write_together(std::uint32_t group, std::span<GroupOperation> writes);
  void read_together(std::uint32_t group, std::span<GroupOperation> reads);
  [[nodiscard]] Error named(const Error& error, std::uint32_t group, ByteOffset at,
                            std::uint64_t length_bytes) const;

 private:
  /// Calls `part(place, done, length)` for each part until one fails.
  template <typename Part>
  Status for_each_part(Operation operation, ByteOffset at, std::uint64_t length_bytes,
                       const Part& part) const;
  /// Calls `use(writer)`; an error if there is none.
  template <typename Use>
  Status with_group(Operation operation, std::uint32_t group, Time until, const Use& use);
  template <typename Change>
  Result<std::uint64_t> change_word(Operation operation, ByteOffset at, Time until,
                                    const Change& change);
  /// Waits for the operations in flight, then swaps.
  void replace_writer(std::shared_ptr<MirrorWriter>& other);
  [[nodiscard]] Error outside(Operation operation, ByteOffset at, std::uint64_t length_bytes) const;

  /// What the last writer of this handle has left.
  enum class Left : std::uint8_t {
    kNothing,
    kUnknown,    ///< it is being released
    kUnresolved  ///< zones whose operations may still take effect
  };

  const MakeOpener make_opener_;
  const Cluster cluster_;
  const VolumeLayout layout_;
  const StripeMap map_;
  const MirrorOptions options_;
  MirrorReader reader_;
  /// Closed while the writer changes, so that operations need no lock to use it.
  OperationGate use_;
  remora::detail::Mutex claiming_;           ///< held while the volume is claimed or released
  mutable remora::detail::Mutex replacing_;  ///< held while writer_ changes, and by writer()
  std::atomic<Left> left_{Left::kNothing};   ///< of no interest while there is a writer
  std::shared_ptr<MirrorWriter> writer_;     ///< changes with the gate closed and quiet
};

}  // namespace remora::volume::detail
