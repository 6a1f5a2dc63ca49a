#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <remora/remora.h>
#include <remora/volume/volume.h>

namespace remora::apps {

/// An operation of a MirrorQueue that has ended.
struct MirrorCompletion {
  std::uint64_t number = 0;
  Status status{};

  [[nodiscard]] bool ok() const noexcept { return status.ok(); }
  /// Only when !ok().
  [[nodiscard]] const Error& error() const noexcept { return status.error(); }
  [[nodiscard]] std::uint64_t tag() const noexcept { return number; }
};

/// What a mirror has in place of a queue: the call that takes an operation carries it out, and
/// wait() hands out what has ended. The functions are those of VolumeQueue that this program uses.
class MirrorQueue {
 public:
  MirrorQueue(volume::Volume volume, std::size_t depth) : volume_{std::move(volume)} {
    ended_.reserve(depth);
  }

  void read(ByteOffset from, const Target& into, std::uint64_t tag) {
    ended_.push_back({tag, volume_.read(from, into)});
  }
  void write(ByteOffset to, const Source& from, std::uint64_t tag) {
    ended_.push_back({tag, volume_.write(to, from)});
  }
  void write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) {
    ended_.push_back({tag, volume_.write_zeroes(at, length_bytes)});
  }
  void flush_visible(std::uint64_t tag) { ended_.push_back({tag, volume_.flush_visible()}); }
  void compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                    std::uint64_t tag) {
    ended_.push_back({tag, status_of(volume_.compare_swap(at, expected, desired))});
  }
  void fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) {
    ended_.push_back({tag, status_of(volume_.fetch_add(at, delta))});
  }

  static Status submit() { return {}; }
  /// Valid until the next call.
  std::span<const MirrorCompletion> wait(std::size_t /*at_least*/) {
    handed_out_.clear();
    handed_out_.swap(ended_);
    return handed_out_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return ended_.size(); }

 private:
  static Status status_of(const Result<std::uint64_t>& result) {
    return result ? Status{} : Status{result.error()};
  }

  volume::Volume volume_;
  std::vector<MirrorCompletion> ended_;
  std::vector<MirrorCompletion> handed_out_;
};

}  // namespace remora::apps
