#pragma once

/// Checksums of bytes that arrive in pieces, by OpenSSL.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::apps {

/// The values of `--checksum`. For each but kNone a command of coreutils prints the same:
/// sha256sum, sha512sum, b2sum.
enum class ChecksumKind : std::uint8_t { kNone, kSha256, kSha512, kBlake2b };
inline constexpr std::array kChecksumKinds{ChecksumKind::kSha256, ChecksumKind::kSha512,
                                           ChecksumKind::kBlake2b, ChecksumKind::kNone};

/// "sha256", in the form of `--checksum`.
[[nodiscard]] std::string_view to_string(ChecksumKind kind) noexcept;
/// Empty: `text` names none of them.
[[nodiscard]] std::optional<ChecksumKind> parse_checksum_kind(std::string_view text) noexcept;

/// An unfinished checksum. Move-only; one thread at a time.
class Checksum {
 public:
  /// `kind`: not kNone. Errors: kUnsupported (this OpenSSL does not have it, as in FIPS mode).
  static Result<Checksum> make(ChecksumKind kind);

  [[nodiscard]] ChecksumKind kind() const noexcept { return kind_; }
  void update(std::span<const std::byte> bytes);
  /// As update() with this many bytes of zero.
  void update_zeroes(std::uint64_t length_bytes);
  /// The checksum of the bytes so far, in hexadecimal. More bytes may follow.
  [[nodiscard]] std::string digest() const;

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  using Context = std::unique_ptr<void, Free>;  // EVP_MD_CTX

  Checksum(ChecksumKind kind, Context context) : kind_{kind}, context_{std::move(context)} {}

  ChecksumKind kind_;
  Context context_;
};

}  // namespace remora::apps
