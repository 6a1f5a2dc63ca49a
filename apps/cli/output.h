#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>

#include <remora/result.h>

#include "cli/descriptor.h"

namespace remora::apps {

/// The destination of the bytes of a `get` or `read`. A regular file appears when commit() is
/// called, complete or not at all. Until then it has no name (O_TMPFILE), so that no file is left
/// however the process ends; on a file system without O_TMPFILE it has a temporary name beside its
/// final one, which the destructor removes.
///
/// An output that can be resumed has the name of the final file with kPartSuffix instead, from the
/// beginning, and may stay there when the process ends.
///
/// A file that is replaced keeps its owner, its group and its mode. A symbolic link stays a link:
/// the file that it points to is replaced.
class Output {
 public:
  static constexpr std::string_view kPartSuffix = ".remora-part";
  enum class Kind : std::uint8_t { kWhole, kResumable };

  /// `-` is standard output. Every fault that can be noticed before the first byte is an error
  /// here. Errors: as Input::open(); kNotFound for a symbolic link whose target is missing;
  /// kPermissionDenied if the owner or the group of the existing file cannot be kept; kBusy if
  /// another process is writing the same output.
  static Result<Output> open(const std::string& path, Kind kind = Kind::kWhole);
  ~Output();
  Output(Output&& other) noexcept;
  Output& operator=(Output&&) = delete;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool is_stdout() const noexcept { return is_stdout_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// All of `bytes`. Errors: kSystem (a full disk: ENOSPC); kCancelled after a signal.
  Status write(std::span<const std::byte> bytes);

  // For a regular file. The functions that read and write are thread-safe.

  [[nodiscard]] bool is_file() const noexcept { return !target_.empty(); }
  /// Cuts the file behind the first `kept` bytes, then makes it `size` bytes long: the rest is a
  /// hole. Errors: kSystem (the limit on file sizes: EFBIG).
  Status resize(std::uint64_t kept, std::uint64_t size);
  Status write_at(std::uint64_t at, std::span<const std::byte> bytes);
  /// Writes the blocks of kHoleBlockBytes that are not zero; the rest must be a hole already. Adds
  /// the number of skipped bytes to `skipped`.
  Status write_sparse(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t& skipped);
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> into) const;
  /// The name under which a resumable output waits.
  [[nodiscard]] std::string part_name() const;
  /// Sets whether a resumable output stays if this object ends before commit(). The default is that
  /// the output of an earlier run stays.
  void keep(bool stays) noexcept { kept_ = stays; }

  /// Makes the file durable and visible. Errors: kSystem.
  Status commit();

 private:
  static constexpr std::size_t kHoleBlockBytes = 4096;

  Output() = default;
  /// Determines the target's name and kind, or why it cannot be a target.
  Status resolve(const std::string& path, const struct stat* there);
  /// Opens the file that is written until commit().
  Status open_part(const struct stat* replaced);
  Status open_unnamed();
  /// `replaced`: the existing file, or null.
  Status open_hidden(const struct stat* replaced);
  /// A name beside the target; mkostemp(3) replaces its XXXXXX.
  [[nodiscard]] std::string temporary_pattern() const;
  /// Gives a file without a name the target's name, if no file has it.
  Status link_to_target();
  /// Gives the file a temporary name, then that of the file that it replaces.
  Status replace_target();

  Descriptor file_;
  std::string name_;       ///< as given, for messages
  std::string target_;     ///< the final name; empty: written in place
  std::string temporary_;  ///< the present name; empty: none yet, or the final one
  Kind kind_ = Kind::kWhole;
  bool is_stdout_ = false;
  bool replaces_ = false;  ///< there was a file of that name
  bool kept_ = false;
};

}  // namespace remora::apps
