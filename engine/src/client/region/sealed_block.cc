#include <algorithm>

#include <remora/engine/sealed_block.h>

#include "base/clock.h"
#include "base/closed.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "client/region/lock_grant.h"
#include "client/region/region_grant.h"

namespace remora {

namespace {

constexpr std::uint32_t kSealMagic = 0x42534d52;  // "RMSB"

/// `error` with the names of server, region and block.
Error of_block(const Error& error, const Region& region, Block at,
               std::size_t length_bytes) noexcept {
  const auto& core = detail::LockGrant::core_of(region);
  return core->named(error).with_place(detail::offset_of(at, region.info()).bytes, length_bytes);
}

Status check_length(const Region& region, Block at, std::span<const std::byte> block) noexcept {
  if (region.block_bytes() == 0)
    return detail::closed("sealed block", detail::LockGrant::owned_by(region));
  if (block.size() == region.block_bytes()) return {};
  return of_block(
      Error{Code::kInvalidArgument, "sealed block"}.with_limit(block.size(), region.block_bytes()),
      region, at, block.size());
}

}  // namespace

Status seal(std::span<std::byte> block, Block at, std::uint64_t version) noexcept {
  if (block.size() <= kSealBytes)
    return Error{Code::kInvalidArgument, "seal"}.with_subject("block").with_limit(block.size(),
                                                                                  kSealBytes + 1);
  if (version == 0) return Error{Code::kInvalidArgument, "seal"}.with_subject("version");
  put_little_endian(block.data() + 4, kSealMagic);
  put_little_endian(block.data() + 8, version);
  put_little_endian(block.data() + 16, at.index);
  put_little_endian(block.data(), crc32c(block.subspan(4)));
  return {};
}

Result<std::uint64_t> check_seal(std::span<const std::byte> block, Block at) noexcept {
  if (block.size() <= kSealBytes)
    return Error{Code::kInvalidArgument, "check_seal"}.with_subject("block").with_limit(
        block.size(), kSealBytes + 1);
  const auto version = get_little_endian<std::uint64_t>(block.data() + 8);
  const bool sealed = version != 0 &&
                      get_little_endian<std::uint32_t>(block.data() + 4) == kSealMagic &&
                      get_little_endian<std::uint64_t>(block.data() + 16) == at.index &&
                      get_little_endian<std::uint32_t>(block.data()) == crc32c(block.subspan(4));
  if (sealed) return version;
  const bool unwritten =
      std::all_of(block.begin(), block.end(), [](std::byte byte) { return byte == std::byte{0}; });
  if (unwritten) return std::uint64_t{0};
  return Error{Code::kBusy, "check_seal"}.with_subject("no whole block");
}

Status write_consistent(const Region& region, Block at, std::span<std::byte> block,
                        std::uint64_t version, std::chrono::nanoseconds deadline) {
  if (auto status = check_length(region, at, block); !status) return status;
  if (auto status = seal(block, at, version); !status) return status;
  return region.write(at, block, deadline);
}

Result<std::uint64_t> read_consistent(const Region& region, Block at, std::span<std::byte> block,
                                      std::chrono::nanoseconds deadline) {
  if (auto status = check_length(region, at, block); !status) return status.error();
  constexpr std::chrono::seconds kUsual{10};
  const Deadline until = deadline_after(deadline > deadline.zero() ? deadline : kUsual);
  while (true) {
    if (auto status = region.read(at, block, deadline); !status) return status.error();
    auto version = check_seal(block, at);
    if (version) return version;
    if (version.error().code() != Code::kBusy || Clock::now() >= until)
      return of_block(version.error(), region, at, block.size());
  }
}

}  // namespace remora
