#pragma once

/// Control messages: Envelopes to and from bytes, and errors to and from messages. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/region.h>
#include <remora/result.h>

#include "protocol/limits.h"
#include "remora_control.pb.h"

namespace remora::control {

inline constexpr std::uint32_t kMagic = 0x41524d52;
inline constexpr std::uint32_t kVersionOldest = 1;
inline constexpr std::uint32_t kVersionNewest = 2;
/// Extents in one reply. An extent has at most 64 bytes (28, and 34 for the keys of eight lanes),
/// so 128 of them leave room for the other fields.
inline constexpr std::size_t kExtentsPerPage = 128;
/// Regions in one reply: 64, each of at most 200 bytes.
inline constexpr std::size_t kRegionsPerPage = 64;
/// Sessions in one reply: 32 × at most 350 bytes.
inline constexpr std::size_t kSessionsPerPage = 32;

/// The longest ttl of a region: 365 days.
inline constexpr std::uint64_t kMaxTtlMs = std::uint64_t{365} * 24 * 3600 * 1000;

/// Errors: kLimitExceeded if the message is longer than kMaxControlMessageBytes; kInvalidArgument
/// for a request with text that is not UTF-8, which no peer could parse.
Result<std::vector<std::byte>> encode(const Envelope& envelope);
/// Errors: kProtocol if the bytes are not an Envelope with a request, a reply or an event.
Result<Envelope> decode(std::span<const std::byte> bytes);

Failure to_failure(const Error& error);
/// The error that the peer sent. Unknown codes become kProtocol, unknown reasons kNone.
Error to_error(const Failure& failure, Operation operation);

/// Without the access list, which only clients that may remove the region see.
Region to_message(const RegionInfo& info);
void add_access(const std::vector<RegionAccess>& access, Region& message);
/// Errors: kInvalidArgument (a name or rights are not valid), kLimitExceeded (kMaxRegionAccess).
Result<std::vector<RegionAccess>> to_access(const Region& message);
/// Errors: kProtocol if the fields contradict each other.
Result<RegionInfo> to_info(const Region& message);

}  // namespace remora::control
