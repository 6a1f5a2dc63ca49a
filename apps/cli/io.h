#pragma once

/// Local ends of a transfer: a file, a device, or a standard stream.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

 private:
  Descriptor file_;
  std::string name_;
  std::optional<std::uint64_t> size_bytes_;
};

/// Where a `get` or `read` puts its bytes. A regular file is written beside its final place and
/// renamed by commit(), so that it is there as a whole or not at all; without commit() nothing
/// is left behind.
class Output {
 public:
  /// `-` is standard output. Errors: as Input::open().
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
  Status open_temporary(bool replaces, unsigned mode);

  Descriptor file_;
  std::string name_;       ///< as given, for messages
  std::string target_;     ///< what commit() renames to; empty: written in place
  std::string temporary_;  ///< empty once renamed
  bool is_stdout_ = false;
};

}  // namespace remora::apps
