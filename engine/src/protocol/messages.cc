#include "protocol/messages.h"

#include <algorithm>
#include <google/protobuf/stubs/logging.h>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace remora::control {

namespace {
/// A bit of Access.rights beside the bits of Rights.
constexpr std::uint32_t kAdminBit = 8;

/// `text` as UTF-8: the receiver cannot parse a message with other text.
std::string wire_text(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const std::size_t whole = detail::character_bytes(text);
    made += whole == 0 ? std::string_view{"?"} : text.substr(0, whole);
    text.remove_prefix(std::max<std::size_t>(whole, 1));
  }
  return made;
}

bool can_be_read(std::span<const std::byte> bytes) {
  Envelope envelope;
  return envelope.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}
}  // namespace

Result<std::vector<std::byte>> encode(const Envelope& envelope) {
  const std::size_t size = envelope.ByteSizeLong();
  if (size > kMaxControlMessageBytes)
    return Error{Code::kLimitExceeded, "control message"}.with_limit(size, kMaxControlMessageBytes);
  std::vector<std::byte> bytes(size);
  const google::protobuf::LogSilencer quiet;
  envelope.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(bytes.data()));
  // The application chooses names. The server would end the session for a message that it cannot
  // parse.
  if (envelope.has_request() && !can_be_read(bytes))
    return Error{Code::kInvalidArgument, "control message"}.with_subject("text that is not UTF-8");
  return bytes;
}

Result<Envelope> decode(std::span<const std::byte> bytes) {
  Envelope envelope;
  // Any program can send malformed bytes, for which protobuf would write to stderr.
  const google::protobuf::LogSilencer quiet;
  if (bytes.size() > kMaxControlMessageBytes ||
      !envelope.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      envelope.magic() != kMagic || envelope.id() == 0 ||
      envelope.kind_case() == Envelope::KIND_NOT_SET)
    return Error{Code::kProtocol, "control message"}.with_subject("not a message of this protocol");
  return envelope;
}

Failure to_failure(const Error& error) {
  Failure failure;
  failure.set_code(static_cast<std::uint32_t>(error.code()));
  failure.set_reason(static_cast<std::uint32_t>(error.reason()));
  failure.set_system_errno(error.system_errno());
  failure.set_has_limit(error.has_limit());
  failure.set_asked(error.asked());
  failure.set_allowed(error.allowed());
  failure.set_subject(wire_text(error.subject()));  // the text may have been cut within a character
  return failure;
}

Error to_error(const Failure& failure, Operation operation) {
  const bool known = failure.code() <= static_cast<std::uint32_t>(Code::kInternal);
  Error error{known ? static_cast<Code>(failure.code()) : Code::kProtocol, operation};
  if (failure.reason() <= static_cast<std::uint32_t>(kReasonLast))
    error = error.with_reason(static_cast<Reason>(failure.reason()));
  if (failure.has_limit()) error = error.with_limit(failure.asked(), failure.allowed());
  return error.with_errno(failure.system_errno()).with_subject(failure.subject());
}

Region to_message(const RegionInfo& info) {
  Region message;
  message.set_name(info.name);
  message.set_size_bytes(info.size_bytes);
  message.set_block_bytes(info.block_bytes);
  message.set_rights(static_cast<std::uint32_t>(info.rights));
  message.set_atomic_domain(info.atomic_domain);
  message.set_shm(info.shm);
  message.set_epoch(info.epoch);
  message.set_incarnation(info.incarnation);
  message.set_extent_count(info.extent_count);
  message.set_open_count(info.open_count);
  message.set_owner(info.owner);
  message.set_lifetime(static_cast<Lifetime>(info.lifetime));
  message.set_ttl_ms(static_cast<std::uint64_t>(info.ttl.count()));
  return message;
}

Result<RegionInfo> to_info(const Region& message) {
  constexpr auto kAllRights = static_cast<std::uint32_t>(Rights::kAll);
  if (message.size_bytes() == 0 || message.block_bytes() == 0 || message.extent_count() == 0 ||
      message.rights() > kAllRights || !Lifetime_IsValid(message.lifetime()) ||
      message.ttl_ms() > kMaxTtlMs || !config::is_region_name(message.name()))
    return Error{Code::kProtocol, "region"}.with_subject(message.name());
  auto access = to_access(message);
  if (!access) return Error{Code::kProtocol, "region"}.with_subject(message.name());
  return RegionInfo{.name = message.name(),
                    .size_bytes = message.size_bytes(),
                    .block_bytes = message.block_bytes(),
                    .rights = static_cast<Rights>(message.rights()),
                    .atomic_domain = message.atomic_domain(),
                    .shm = message.shm(),
                    .epoch = message.epoch(),
                    .incarnation = message.incarnation(),
                    .extent_count = message.extent_count(),
                    .open_count = message.open_count(),
                    .owner = message.owner(),
                    .access = std::move(*access),
                    .lifetime = static_cast<remora::Lifetime>(message.lifetime()),
                    .ttl = std::chrono::milliseconds{message.ttl_ms()}};
}

void add_access(const std::vector<RegionAccess>& access, Region& message) {
  for (const RegionAccess& each : access) {
    Access& made = *message.add_access();
    made.set_client(each.client);
    made.set_rights(static_cast<std::uint32_t>(each.rights) | (each.admin ? kAdminBit : 0U));
  }
}

Result<std::vector<RegionAccess>> to_access(const Region& message) {
  const Error wrong{Code::kInvalidArgument, "access list"};
  if (static_cast<std::size_t>(message.access_size()) > kMaxRegionAccess)
    return Error{Code::kLimitExceeded, "access list"}.with_limit(
        static_cast<std::uint64_t>(message.access_size()), kMaxRegionAccess);
  std::vector<RegionAccess> list;
  for (const Access& each : message.access()) {
    if ((each.client() != config::kAnyClient && !config::is_client_name(each.client())) ||
        each.rights() == 0 ||
        each.rights() > (static_cast<std::uint32_t>(Rights::kAll) | kAdminBit))
      return wrong.with_subject(each.client());
    list.push_back({.client = each.client(),
                    .rights = static_cast<Rights>(each.rights()) & Rights::kAll,
                    .admin = (each.rights() & kAdminBit) != 0});
  }
  return list;
}

}  // namespace remora::control
