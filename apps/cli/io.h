#pragma once

/// Local ends of a transfer: a file, a device, or a standard stream.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <utility>

#include <remora/result.h>

namespace remora::apps {

/// An open descriptor; closed with the object unless it is a standard stream.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_{fd} {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }
  /// errno of close(2), or 0. Leaves standard streams open.
  int close() noexcept;

 private:
  int fd_ = -1;
};

/// Where a `put` or `write` takes its bytes from.
class Input {
 public:
  /// `-` is standard input. Errors: kNotFound, kPermissionDenied, kSystem (a directory, too).
  static Result<Input> open(const std::string& path);

  /// The bytes left to read, where that is known before reading (a regular file).
  [[nodiscard]] std::optional<std::uint64_t> size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether read() will not block.
  [[nodiscard]] bool ready() const noexcept;
  /// Blocks for the first byte only, then takes what is there; 0 at the end.
  /// Errors: kSystem; kCancelled after a signal.
  Result<std::size_t> read(std::span<std::byte> into);
  /// After `bytes` have been read up to the end: empty where the file has as many as when it was
  /// opened and has not been written to since, else a clause that says how it has changed.
  [[nodiscard]] std::string change_since_open(std::uint64_t bytes) const;

 private:
  Descriptor file_;
  std::string name_;
  std::optional<std::uint64_t> size_bytes_;
  timespec modified_{};  ///< of a regular file, when it was opened
};

/// Where a `get` or `read` puts its bytes. A regular file appears when commit() is called, as a
/// whole or not at all. Until then it has no name (O_TMPFILE), so that nothing is left behind
/// however the process ends; on a file system without O_TMPFILE it has a temporary name beside its
/// final one, which the destructor removes.
///
/// A file that is replaced keeps its owner, its group and its mode. A symbolic link stays one: the
/// file that it points to is replaced.
class Output {
 public:
  /// `-` is standard output. Everything that can be known before the first byte is refused here.
  /// Errors: as Input::open(); kNotFound for a symbolic link whose target is missing;
  /// kPermissionDenied where the owner or the group of the file that is there cannot be kept.
  static Result<Output> open(const std::string& path);
  ~Output();
  Output(Output&& other) noexcept;
  Output& operator=(Output&&) = delete;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool is_stdout() const noexcept { return is_stdout_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// All of `bytes`. Errors: kSystem (a full disk: ENOSPC); kCancelled after a signal.
  Status write(std::span<const std::byte> bytes);
  /// Makes it durable and visible. Errors: kSystem.
  Status commit();

 private:
  Output() = default;
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
  bool is_stdout_ = false;
  bool replaces_ = false;  ///< there was a file of that name
};

}  // namespace remora::apps
