#pragma once

/// Control messages: protobuf in and out of bounded byte buffers, and errors across the wire.

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
/// Extents in one reply: 128 × at most 64 bytes (28, and 34 of keys for eight lanes) leaves room
/// for the rest of the message.
inline constexpr std::size_t kExtentsPerPage = 128;
/// Regions in one reply: 64 × at most 200 bytes.
inline constexpr std::size_t kRegionsPerPage = 64;
/// Sessions in one reply: 32 × at most 350 bytes.
inline constexpr std::size_t kSessionsPerPage = 32;

/// Longest ttl of a region: 365 days.
inline constexpr std::uint64_t kMaxTtlMs = std::uint64_t{365} * 24 * 3600 * 1000;

/// Errors: kLimitExceeded when the message is longer than kMaxControlMessageBytes;
/// kInvalidArgument for a request with text that is not UTF-8, which no peer could parse.
Result<std::vector<std::byte>> encode(const Envelope& envelope);
/// Errors: kProtocol for anything that is not an envelope of ours with a request or a reply in it.
Result<Envelope> decode(std::span<const std::byte> bytes);

Failure to_failure(const Error& error);
/// An error as the peer sent it; codes and reasons that we do not know become kProtocol and kNone.
Error to_error(const Failure& failure, Operation operation);

/// Without the access list, which only some clients may see.
Region to_message(const RegionInfo& info);
void add_access(const std::vector<RegionAccess>& access, Region& message);
/// Errors: kInvalidArgument (a name, rights), kLimitExceeded (kMaxRegionAccess).
Result<std::vector<RegionAccess>> to_access(const Region& message);
/// Errors: kProtocol when it contradicts itself.
Result<RegionInfo> to_info(const Region& message);

}  // namespace remora::control
