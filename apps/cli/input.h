#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>

#include <remora/result.h>

#include "cli/descriptor.h"

namespace remora::apps {

/// Distinguishes a regular file from another file, and from itself after a change.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  ///< of its contents
  std::int64_t changed_ns = 0;   ///< of its contents or its inode
};

/// A part of a file that is either data or a hole.
struct FileStretch {
  std::uint64_t end = 0;
  bool hole = false;  ///< zeroes that use no room on the disk
};

/// The source of the bytes of a `put` or `write`.
class Input {
 public:
  /// `-` is standard input. Errors: kNotFound, kPermissionDenied, kSystem (also for a directory).
  static Result<Input> open(const std::string& path);

  /// The bytes left to read, if that is known before reading (a regular file).
  [[nodiscard]] std::optional<std::uint64_t> size_bytes() const noexcept { return size_bytes_; }
  /// A regular file, also an empty one, and one of procfs, whose size is not known.
  [[nodiscard]] bool is_regular() const noexcept { return regular_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether read() will not block.
  [[nodiscard]] bool ready() const noexcept;
  /// Blocks only for the first byte, then returns the available bytes; 0 at the end.
  /// Errors: kSystem; kCancelled after a signal.
  Result<std::size_t> read(std::span<std::byte> into);

  // For a file whose size is known; offsets count from where reading began. Thread-safe.

  /// Reads all of `into`, or the bytes up to the end. Errors: kSystem.
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> into) const;
  /// The stretch that begins at `at`, as far as the file system reports it.
  [[nodiscard]] FileStretch stretch(std::uint64_t at) const noexcept;
  /// Sets the file offset behind the first `bytes`, as reading them would.
  void seek_behind(std::uint64_t bytes) noexcept;
  [[nodiscard]] FileIdentity identity() const noexcept;

  /// After `bytes` have been read up to the end: empty if the file has as many bytes as when it was
  /// opened and has not been written to since, otherwise a clause that says how it has changed.
  [[nodiscard]] std::string change_since_open(std::uint64_t bytes) const;

 private:
  Descriptor file_;
  std::string name_;
  std::optional<std::uint64_t> size_bytes_;
  bool regular_ = false;
  std::uint64_t begin_ = 0;  ///< the file offset when it was opened
  timespec modified_{};      ///< of a regular file, when it was opened
};

}  // namespace remora::apps
