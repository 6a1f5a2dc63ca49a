#include "transport/rdma/rejection.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

namespace remora::transport::rdma {

namespace {

constexpr std::array kRejectionMagic{std::byte{'R'}, std::byte{'M'}, std::byte{'R'},
                                     std::byte{'R'}};
constexpr std::byte kRejectionVersion{1};
constexpr std::size_t kMaxTextBytes = verbs::kMaxRejectDataBytes - Rejection::kHeadBytes;

void put_number(std::byte* to, std::uint64_t value) noexcept {
  for (std::size_t i = sizeof value; i-- > 0; value >>= 8U)
    to[i] = static_cast<std::byte>(value & 0xffU);
}

std::uint64_t get_number(const std::byte* from) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = value << 8U | std::to_integer<std::uint64_t>(from[i]);
  return value;
}

/// The text without errno, which the client would take for an errno of its own process. The reason
/// has its own text at the client.
std::string rejection_text(const Error& why) {
  std::string text{why.operation()};
  if (!why.subject().empty()) text.append(": ").append(why.subject());
  if (why.reason() == Reason::kNone)
    text.append(": ").append(why.system_errno() == 0
                                 ? std::string{to_string(why.code())}
                                 : std::system_category().message(why.system_errno()));
  return text;
}

}  // namespace

Rejection::Wire Rejection::to_wire(const Error& why) {
  Wire wire{};
  const std::string text = rejection_text(why);
  const std::size_t length_bytes = std::min(text.size(), kMaxTextBytes);
  std::copy(kRejectionMagic.begin(), kRejectionMagic.end(), wire.begin());
  wire[4] = kRejectionVersion;
  wire[5] = static_cast<std::byte>(why.reason());
  wire[6] = static_cast<std::byte>(why.has_limit() ? 1 : 0);
  wire[7] = static_cast<std::byte>(length_bytes);
  put_number(&wire[8], why.has_limit() ? why.asked() : 0);
  put_number(&wire[16], why.has_limit() ? why.allowed() : 0);
  std::memcpy(&wire[kHeadBytes], text.data(), length_bytes);
  return wire;
}

std::optional<Error> Rejection::from_wire(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes ||
      !std::equal(kRejectionMagic.begin(), kRejectionMagic.end(), bytes.begin()) ||
      bytes[4] != kRejectionVersion || bytes[6] > std::byte{1})
    return std::nullopt;
  const auto length_bytes = std::to_integer<std::size_t>(bytes[7]);
  if (length_bytes > bytes.size() - kHeadBytes) return std::nullopt;
  Error error = Error{Code::kConnectionRefused, "connection that the server refused"}.with_subject(
      {reinterpret_cast<const char*>(bytes.data()) + kHeadBytes, length_bytes});
  const auto reason = static_cast<Reason>(bytes[5]);
  if (reason <= kReasonLast) error = error.with_reason(reason);
  if (bytes[6] == std::byte{1})
    error = error.with_limit(get_number(&bytes[8]), get_number(&bytes[16]));
  return error;
}

Error told_by_server(const verbs::Connector& connector, const Error& error) {
  const auto& answer = connector.answer();
  if (!answer || answer->kind != verbs::ConnectionEvent::Kind::kRejected) return error;
  return Rejection::from_wire(answer->private_data.bytes()).value_or(error);
}

}  // namespace remora::transport::rdma
