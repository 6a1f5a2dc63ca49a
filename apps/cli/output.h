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

/// Where a `get` or `read` puts its bytes. A regular file appears when commit() is called, as a
/// whole or not at all. Until then it has no name (O_TMPFILE), so that nothing is left behind
/// however the process ends; on a file system without O_TMPFILE it has a temporary name beside its
/// final one, which the destructor removes.
///
/// An output that can be resumed has the name of the final file with kPartSuffix instead, from the
/// beginning, and may stay there when the process ends.
///
/// A file that is replaced keeps its owner, its group and its mode. A symbolic link stays one: the
/// file that it points to is replaced.
class Output {
 public:
  static constexpr std::string_view kPartSuffix = ".remora-part";
  enum class Kind : std::uint8_t { kWhole, kResumable };

  /// `-` is standard output. Everything that can be known before the first byte is refused here.
  /// Errors: as Input::open(); kNotFound for a symbolic link whose target is missing;
  /// kPermissionDenied where the owner or the group of the file that is there cannot be kept; kBusy
  /// where another process has the same output under way.
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

  // Of a regular file. Those that read and write are thread-safe.

  [[nodiscard]] bool is_file() const noexcept { return !target_.empty(); }
  /// Cuts it behind the first `kept` bytes, then makes it `size` bytes long: the rest is a hole.
  /// Errors: kSystem (the limit on file sizes: EFBIG).
  Status resize(std::uint64_t kept, std::uint64_t size);
  Status write_at(std::uint64_t at, std::span<const std::byte> bytes);
  /// Writes what is not zero, in blocks of kHoleBlockBytes; the rest must be a hole already. Adds
  /// the bytes that it left out to `skipped`.
  Status write_sparse(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t& skipped);
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> into) const;
  /// The name under which a resumable output waits.
  [[nodiscard]] std::string part_name() const;
  /// Whether a resumable output stays when this object ends before commit(). Until this is called:
  /// as what an earlier run has left does.
  void keep(bool stays) noexcept { kept_ = stays; }

  /// Makes it durable and visible. Errors: kSystem.
  Status commit();

 private:
  static constexpr std::size_t kHoleBlockBytes = 4096;

  Output() = default;
  /// The target's name and kind, or why it cannot be one.
  Status resolve(const std::string& path, const struct stat* there);
  /// Opens what is written to until commit().
  Status open_part(const struct stat* replaced);
  Status open_unnamed();
  /// `replaced`: the file that is there, or null.
  Status open_hidden(const struct stat* replaced);
  /// A name beside the target; its XXXXXX is for mkostemp(3).
  [[nodiscard]] std::string temporary_pattern() const;
  /// Gives a file that has no name yet the target's name, which no other file has.
  Status link_to_target();
  /// Gives it a temporary name, then that of the file it replaces.
  Status replace_target();

  Descriptor file_;
  std::string name_;       ///< as given, for messages
  std::string target_;     ///< the final name; empty: written in place
  std::string temporary_;  ///< the name that the file has now; empty: none yet, or the final one
  Kind kind_ = Kind::kWhole;
  bool is_stdout_ = false;
  bool replaces_ = false;  ///< there was a file of that name
  bool kept_ = false;
};

}  // namespace remora::apps
