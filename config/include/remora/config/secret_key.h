#pragma once

/// A key that a client and a server both know, and the file it is kept in.
///
/// As text it is 64 hexadecimal digits, 32 bytes: `openssl rand -hex 32` makes one, and so does
/// `remora key generate`. Base64 lost: it has paddings, alphabets and lengths to get wrong, and a
/// longer key than the hash that it feeds adds nothing.
///
/// Thread safety: values; the functions that open files are thread-safe.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::config {

/// 32 secret bytes, wiped when they are no longer used. There is no way to print one by accident.
class SecretKey {
 public:
  static constexpr std::size_t kBytes = 32;

  /// Of 64 hexadecimal digits, in either case. What has fewer than 16 different bytes was typed and
  /// not drawn (a random key has so few once in 10^15), and is refused.
  /// Errors: kInvalidArgument; the text is never part of the error.
  static Result<SecretKey> parse(std::string_view text);
  /// Drawn from the kernel's generator. Errors: kSystem. Source: getrandom(2).
  static Result<SecretKey> generate();

  SecretKey(const SecretKey&) noexcept = default;
  SecretKey& operator=(const SecretKey&) noexcept = default;
  ~SecretKey();

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept { return bytes_; }
  /// The secret itself as text, in lower case: for the file that it is kept in.
  [[nodiscard]] std::string to_hex() const;

  /// Takes the same time wherever they differ.
  friend bool operator==(const SecretKey& a, const SecretKey& b) noexcept;

 private:
  SecretKey() noexcept = default;
  std::array<std::byte, kBytes> bytes_{};
};

/// 1 to 64 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`: what a client may be called.
[[nodiscard]] bool is_client_name(std::string_view name) noexcept;

/// Reads the key that is the only line of the file at `path`: a regular file that others may not
/// read or change (no permission for others, none but reading for the group). Blocks: reads a file.
/// Errors, the subject is the path: kNotFound; kPermissionDenied (errno, or others may read it);
/// kInvalidArgument (not a regular file, not a key); kSystem.
Result<SecretKey> read_key_file(const std::string& path);

/// Makes the file at `path`, readable by its owner alone, with `key` as its only line. What is
/// there already stays. Blocks until it is on the disk. Errors, the subject is the path:
/// kAlreadyExists; kNotFound (the folder); kPermissionDenied; kSystem.
Status write_key_file(const std::string& path, const SecretKey& key);

}  // namespace remora::config
