#include "control/messages.h"

#include <algorithm>

namespace remora::control {

Result<std::vector<std::byte>> encode(const Envelope& envelope) {
  const std::size_t size = envelope.ByteSizeLong();
  if (size > transport::kControlMessageBytesMax)
    return Error{Code::kLimitExceeded, "control message"}.with_limit(
        size, transport::kControlMessageBytesMax);
  std::vector<std::byte> bytes(size);
  envelope.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(bytes.data()));
  return bytes;
}

Result<Envelope> decode(std::span<const std::byte> bytes) {
  Envelope envelope;
  if (bytes.size() > transport::kControlMessageBytesMax ||
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
  failure.set_subject(std::string{error.subject()});
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
  message.set_extent_count(info.extent_count);
  message.set_open_count(info.open_count);
  message.set_lifetime(static_cast<Lifetime>(info.lifetime));
  message.set_ttl_ms(static_cast<std::uint64_t>(info.ttl.count()));
  return message;
}

Result<RegionInfo> to_info(const Region& message) {
  constexpr auto kAllRights = static_cast<std::uint32_t>(Rights::kAll);
  if (message.size_bytes() == 0 || message.block_bytes() == 0 || message.extent_count() == 0 ||
      message.rights() > kAllRights || !Lifetime_IsValid(message.lifetime()) ||
      message.ttl_ms() > kTtlMsMax || !config::is_region_name(message.name()))
    return Error{Code::kProtocol, "region"}.with_subject(message.name());
  return RegionInfo{.name = message.name(),
                    .size_bytes = message.size_bytes(),
                    .block_bytes = message.block_bytes(),
                    .rights = static_cast<Rights>(message.rights()),
                    .atomic_domain = message.atomic_domain(),
                    .shm = message.shm(),
                    .epoch = message.epoch(),
                    .extent_count = message.extent_count(),
                    .open_count = message.open_count(),
                    .lifetime = static_cast<remora::Lifetime>(message.lifetime()),
                    .ttl = std::chrono::milliseconds{message.ttl_ms()}};
}

}  // namespace remora::control
