#pragma once

/// A key that a client and a server both have, and its file.
///
/// As text it is 64 hexadecimal digits, 32 bytes: `openssl rand -hex 32` makes one, and so does
/// `remora key generate`. Not Base64: it has paddings, alphabets and lengths that cause errors, and
/// a key that is longer than its hash adds nothing.
///
/// Thread safety: values; the functions that open files are thread-safe.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::config {

/// 32 secret bytes, wiped when they are no longer used. No function prints a key by accident.
class SecretKey {
 public:
  /// The length of a key.
  static constexpr std::size_t kBytes = 32;

  /// A key from 64 hexadecimal digits, in either case. A key with fewer than 16 different bytes is
  /// refused: it was typed, not drawn (a random key has so few once in 10^15). Errors:
  /// kInvalidArgument; the text is never part of the error.
  static Result<SecretKey> parse(std::string_view text);
  /// A key from the kernel's random generator. Errors: kSystem. Source: getrandom(2).
  static Result<SecretKey> generate();

  SecretKey(const SecretKey&) noexcept = default;
  SecretKey& operator=(const SecretKey&) noexcept = default;
  ~SecretKey();

  /// The secret itself; valid as long as this object.
  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept { return bytes_; }
  /// The secret itself as text, in lower case: for its file.
  [[nodiscard]] std::string to_hex() const;

  /// Takes the same time wherever the keys differ.
  friend bool operator==(const SecretKey& a, const SecretKey& b) noexcept;

 private:
  SecretKey() noexcept = default;
  std::array<std::byte, kBytes> bytes_{};
};

/// Whether `name` can be the name of a client: 1 to 64 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`.
[[nodiscard]] bool is_client_name(std::string_view name) noexcept;

/// Reads the key that is the only line of the file at `path`: a regular file that other users may
/// not read or change (no permission for others, only reading for the group). Blocks: reads a file.
/// Errors, the subject is the path: kNotFound; kPermissionDenied (errno, or others may read it);
/// kInvalidArgument (not a regular file, not a key); kSystem.
Result<SecretKey> read_key_file(const std::string& path);

/// Creates the file at `path`, readable only by its owner, with `key` as its only line. An existing
/// file stays. Blocks until the file is on the disk. Errors, the subject is the path:
/// kAlreadyExists; kNotFound (the folder); kPermissionDenied; kSystem.
Status write_key_file(const std::string& path, const SecretKey& key);

}  // namespace remora::config
