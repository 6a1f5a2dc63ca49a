#pragma once

/// Error: the failed operation, the reason, and the remedy. Included by <remora/result.h>, which
/// says how functions return it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

#include <remora/error_code.h>
#include <remora/error_remedies.h>

namespace remora {

/// Names the call that failed. Built from string literals only (checked at compile time), so an
/// Error can carry it without owning it.
class Operation {
 public:
  /// No call: its text is empty.
  constexpr Operation() noexcept = default;
  /// `literal`: a string literal, such as "ibv_post_send".
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is the natural way to name a call.
  consteval Operation(const char (&literal)[N]) noexcept : text_{literal} {}

  /// The name of the call; valid until the end of the program.
  [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }
  /// True: the same name, by its characters.
  friend constexpr bool operator==(Operation a, Operation b) noexcept {
    return a.text() == b.text();
  }

 private:
  const char* text_ = "";
};

/// The operation that failed, its subject, the reason and the remedy. Trivially copyable, at most
/// three cache lines.
///
/// Built with `Error{Code, "call"}` and the `with_…` functions, each of which returns a copy.
class [[nodiscard]] Error {
 public:
  /// The longest subject that is kept; longer ones end in "...".
  static constexpr std::size_t kSubjectBytes = 88;  ///< two IPv6 addresses
  /// The longest server that is kept; of a longer one the beginning and the port.
  static constexpr std::size_t kServerBytes = 48;  ///< an IPv6 address in brackets and a port

  /// An error without subject, reason, errno, limit, server and place: `with_…` sets them.
  constexpr explicit Error(Code code, Operation operation = {}) noexcept
      : operation_{operation}, code_{code} {}

  /// The reason that refines the code; the last one counts.
  [[nodiscard]] constexpr Error with_reason(Reason reason) const noexcept {
    Error copy = *this;
    copy.reason_ = reason;
    return copy;
  }
  /// errno of the failed call; 0: none.
  [[nodiscard]] constexpr Error with_errno(int system_errno) const noexcept {
    Error copy = *this;
    copy.errno_ = system_errno;
    return copy;
  }
  /// The NIC's completion status and the number that the vendor gives it (ibv_wc::vendor_err).
  [[nodiscard]] constexpr Error with_completion(CompletionStatus status,
                                                std::uint32_t vendor_error) const noexcept {
    Error copy = *this;
    copy.completion_ = status;
    copy.vendor_error_ = vendor_error;
    return copy;
  }
  /// The requested amount and the limit that it exceeds; the unit follows from the operation.
  [[nodiscard]] constexpr Error with_limit(std::uint64_t asked,
                                           std::uint64_t allowed) const noexcept {
    Error copy = *this;
    copy.asked_ = asked;
    copy.allowed_ = allowed;
    copy.has_limit_ = true;
    return copy;
  }
  /// The subject of the error: an address, a path, a device, a region's name. Copied, cut at
  /// kSubjectBytes; unprintable bytes become '?'.
  [[nodiscard]] constexpr Error with_subject(std::string_view subject) const noexcept {
    Error copy = *this;
    const std::size_t length = std::min(subject.size(), kSubjectBytes);
    for (std::size_t i = 0; i < length; ++i) copy.subject_[i] = printable(subject[i]);
    if (subject.size() > kSubjectBytes)
      for (std::size_t i = kSubjectBytes - 3; i < kSubjectBytes; ++i) copy.subject_[i] = '.';
    copy.subject_length_ = static_cast<std::uint8_t>(length);
    return copy;
  }

  /// The server of the error, "host:port". Copied, cut in its middle at kServerBytes.
  [[nodiscard]] constexpr Error with_server(std::string_view server) const noexcept {
    constexpr std::size_t kTailBytes = 12;
    constexpr std::string_view kGap = "...";
    Error copy = *this;
    const bool cut = server.size() > kServerBytes;
    const std::size_t head = cut ? kServerBytes - kGap.size() - kTailBytes : server.size();
    std::size_t end = 0;
    for (const char c : server.substr(0, head)) copy.server_[end++] = printable(c);
    if (cut) {
      for (const char c : kGap) copy.server_[end++] = c;
      for (const char c : server.substr(server.size() - kTailBytes))
        copy.server_[end++] = printable(c);
    }
    copy.server_length_ = static_cast<std::uint8_t>(end);
    return copy;
  }
  /// The bytes of the operation, in the region that is the subject.
  [[nodiscard]] constexpr Error with_place(std::uint64_t offset_bytes,
                                           std::uint64_t length_bytes) const noexcept {
    Error copy = *this;
    copy.offset_ = offset_bytes;
    copy.length_ = length_bytes;
    copy.has_place_ = true;
    return copy;
  }

  /// The kind of the failure.
  [[nodiscard]] constexpr Code code() const noexcept { return code_; }
  /// kNone: nothing refines the code.
  [[nodiscard]] constexpr Reason reason() const noexcept { return reason_; }
  /// The call that failed; valid until the end of the program. Empty: not known.
  [[nodiscard]] constexpr std::string_view operation() const noexcept { return operation_.text(); }
  /// errno of the failed call, 0: no errno.
  [[nodiscard]] constexpr int system_errno() const noexcept { return errno_; }
  /// The NIC's completion status; kSuccess: no completion failed.
  [[nodiscard]] constexpr CompletionStatus completion_status() const noexcept {
    return completion_;
  }
  /// The vendor's number for completion_status(); 0: none.
  [[nodiscard]] constexpr std::uint32_t vendor_error() const noexcept { return vendor_error_; }
  /// Whether asked() and allowed() are set.
  [[nodiscard]] constexpr bool has_limit() const noexcept { return has_limit_; }
  /// The requested amount, in the unit of the operation. Only when has_limit().
  [[nodiscard]] constexpr std::uint64_t asked() const noexcept { return asked_; }
  /// The limit that asked() exceeds. Only when has_limit().
  [[nodiscard]] constexpr std::uint64_t allowed() const noexcept { return allowed_; }
  /// The object that the error is about; empty: none. Valid as long as this Error.
  [[nodiscard]] constexpr std::string_view subject() const noexcept {
    return {subject_.data(), subject_length_};
  }
  /// "host:port"; empty: the error concerns no server. Valid as long as this Error.
  [[nodiscard]] constexpr std::string_view server() const noexcept {
    return {server_.data(), server_length_};
  }
  /// Whether offset_bytes() and length_bytes() are the bytes of a region.
  [[nodiscard]] constexpr bool has_place() const noexcept { return has_place_; }
  /// From the start of the region. Only when has_place().
  [[nodiscard]] constexpr std::uint64_t offset_bytes() const noexcept { return offset_; }
  /// Only when has_place().
  [[nodiscard]] constexpr std::uint64_t length_bytes() const noexcept { return length_; }

  /// One line for a person: the failed operation, its place, the reason and the remedy. Allocates.
  [[nodiscard]] std::string message() const;
  /// The remedy; empty: no general one is known. Valid until the end of the program.
  [[nodiscard]] std::string_view remedy() const noexcept;

 private:
  [[nodiscard]] static constexpr char printable(char c) noexcept {
    return (c >= 0x20 && c != 0x7f) || (static_cast<unsigned char>(c) >= 0x80) ? c : '?';
  }
  void append_place(std::string& text) const;
  void append_limit(std::string& text) const;

  Operation operation_;
  std::uint64_t asked_ = 0;
  std::uint64_t allowed_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t length_ = 0;
  int errno_ = 0;
  std::uint32_t vendor_error_ = 0;
  Code code_;
  Reason reason_ = Reason::kNone;
  CompletionStatus completion_ = CompletionStatus::kSuccess;
  bool has_limit_ = false;
  bool has_place_ = false;
  std::uint8_t subject_length_ = 0;
  std::uint8_t server_length_ = 0;
  std::array<char, kSubjectBytes> subject_{};
  std::array<char, kServerBytes> server_{};
};
static_assert(std::is_trivially_copyable_v<Error>);
static_assert(sizeof(Error) <= 192);

inline std::string_view Error::remedy() const noexcept {
  // From the most specific to the least specific.
  std::string_view remedy = detail::remedy_of_errno(errno_);
  // A refusal of a server names a request; an error of pinning in this process names the call of
  // the device, or the bytes of a region.
  if (remedy.empty() && reason_ == Reason::kMemlock)
    remedy = detail::remedy_of_memlock(!server().empty() && !has_place_ &&
                                       !operation().starts_with("ibv_"));
  if (remedy.empty()) remedy = detail::remedy_of(reason_);
  if (remedy.empty() && reason_ == Reason::kVersion && operation() == "hello")
    remedy = detail::kRemedyOfVersion;
  if (remedy.empty()) remedy = detail::remedy_of_connect(operation(), code_, errno_);
  if (remedy.empty()) remedy = detail::remedy_of_uri(operation());
  if (remedy.empty()) remedy = detail::remedy_of(operation(), code_);
  if (remedy.empty() && code_ == Code::kLimitExceeded && subject().starts_with("limits."))
    remedy = "the server's file sets it";
  if (remedy.empty() && code_ == Code::kLimitExceeded && subject().starts_with("bytes left of the"))
    remedy = "'remora usage' shows what the client has; 'quota' in the server's file bounds it";
  if (remedy.empty()) remedy = detail::remedy_of_post(operation(), code_, subject());
  if (remedy.empty() && code_ == Code::kInvalidArgument)
    remedy = detail::remedy_of_argument(operation(), subject());
  if (remedy.empty()) remedy = detail::remedy_of_verb(operation(), code_, errno_, subject());
  if (remedy.empty()) remedy = detail::remedy_of(code_);
  return remedy;
}

/// "host:7471/cache, offset 4096, length 64: ", or the known parts of it.
inline void Error::append_place(std::string& text) const {
  const bool both = !server().empty() && !subject().starts_with(server());
  if (both) text.append(server());
  if (both && !subject().empty()) text.append(has_place_ ? "/" : ": ");
  text.append(subject());
  if (has_place_)
    text.append(", offset ")
        .append(std::to_string(offset_))
        .append(", length ")
        .append(std::to_string(length_));
  if (both || !subject().empty()) text.append(": ");
}

inline void Error::append_limit(std::string& text) const {
  if (!has_limit_) return;
  if (has_place_ && code_ == Code::kOutOfRange)
    text.append(" (the region has ").append(std::to_string(allowed_)).append(" bytes)");
  else
    text.append(" (asked ")
        .append(std::to_string(asked_))
        .append(", allowed ")
        .append(std::to_string(allowed_))
        .append(")");
}

inline std::string Error::message() const {
  std::string text;
  if (!operation().empty()) text.append(operation()).append(": ");
  append_place(text);
  text.append(to_string(code_));
  append_limit(text);
  if (reason_ != Reason::kNone) text.append(": ").append(to_string(reason_));
  if (completion_ != CompletionStatus::kSuccess) {
    text.append(": ").append(to_string(completion_));
    if (vendor_error_ != 0) text.append(", vendor error ").append(std::to_string(vendor_error_));
  }
  if (errno_ != 0) {
    std::array<char, 128> buffer{};
    // The GNU strerror_r: may return a static string, never fails.
    text.append(": ").append(::strerror_r(errno_, buffer.data(), buffer.size()));
  }
  if (!remedy().empty()) text.append("; ").append(remedy());
  return text;
}

/// Writes the message().
inline std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << error.message();
}

}  // namespace remora
