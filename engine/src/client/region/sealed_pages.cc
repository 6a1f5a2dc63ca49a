#include <algorithm>
#include <array>

#include <remora/engine/sealed_pages.h>

#include "base/clock.h"
#include "base/closed.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "client/region/lock_grant.h"

namespace remora {

namespace {

constexpr std::uint32_t kPageSealMagic = 0x50534d52;  // "RMSP"
using SealBytes = std::array<std::byte, kPageSealBytes>;

std::uint32_t sum_of(std::span<const std::byte> page, PageSealView seal) noexcept {
  return crc32c(seal.subspan<4>(), crc32c(page));
}

bool all_zero(std::span<const std::byte> bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

Status seal_page(std::span<const std::byte> page, Block at, std::uint64_t version,
                 PageSeal seal) noexcept {
  const Error wrong{Code::kInvalidArgument, "seal_page"};
  if (page.empty()) return wrong.with_subject("the page is empty");
  if (version == 0) return wrong.with_subject("version 0 is that of a page that was never written");
  std::fill(seal.begin(), seal.end(), std::byte{0});
  put_little_endian(seal.data() + 4, kPageSealMagic);
  put_little_endian(seal.data() + 8, version);
  put_little_endian(seal.data() + 16, at.index);
  put_little_endian(seal.data(), sum_of(page, seal));
  return {};
}

Result<std::uint64_t> check_page(std::span<const std::byte> page, Block at,
                                 PageSealView seal) noexcept {
  if (page.empty())
    return Error{Code::kInvalidArgument, "check_page"}.with_subject("the page is empty");
  const auto version = get_little_endian<std::uint64_t>(seal.data() + 8);
  const bool sealed = version != 0 &&
                      get_little_endian<std::uint32_t>(seal.data() + 4) == kPageSealMagic &&
                      get_little_endian<std::uint64_t>(seal.data() + 16) == at.index &&
                      get_little_endian<std::uint32_t>(seal.data()) == sum_of(page, seal);
  if (sealed) return version;
  if (all_zero(seal) && all_zero(page)) return std::uint64_t{0};
  return Error{Code::kBusy, "check_page"}.with_subject("page and seal do not belong together");
}

Result<SealedPages> SealedPages::over(const Region& region) {
  const std::uint64_t page_bytes = region.block_bytes();
  if (page_bytes == 0)
    return detail::closed("SealedPages::over", detail::LockGrant::owned_by(region));
  const std::uint64_t count = region.size_bytes() / (page_bytes + kPageSealBytes);
  if (count == 0)
    return Error{Code::kInvalidArgument, "SealedPages::over"}
        .with_subject("the region has no room for one page and its seal")
        .with_limit(page_bytes + kPageSealBytes, region.size_bytes());
  return SealedPages{region, region, ByteOffset{count * page_bytes}, count};
}

Result<SealedPages> SealedPages::over(const Region& pages, const Region& seals,
                                      ByteOffset seals_at) {
  if (pages.block_bytes() == 0 || seals.block_bytes() == 0)
    return detail::closed("SealedPages::over",
                          detail::LockGrant::owned_by(pages.block_bytes() == 0 ? pages : seals));
  const std::uint64_t room = seals.size_bytes() - std::min(seals.size_bytes(), seals_at.bytes);
  const std::uint64_t count = std::min(pages.block_count(), room / kPageSealBytes);
  if (count == 0)
    return Error{Code::kInvalidArgument, "SealedPages::over"}
        .with_subject("the region of the seals has no room for one seal")
        .with_limit(kPageSealBytes, room);
  return SealedPages{pages, seals, seals_at, count};
}

Status SealedPages::check(Block at, std::size_t length_bytes) const noexcept {
  if (page_bytes() == 0) return detail::closed("sealed page", detail::LockGrant::owned_by(pages_));
  if (length_bytes != page_bytes())
    return Error{Code::kInvalidArgument, "sealed page"}
        .with_subject("the buffer is not one page long")
        .with_limit(length_bytes, page_bytes());
  if (at.index < page_count_) return {};
  return Error{Code::kOutOfRange, "sealed page"}
      .with_subject("pages whose seals have room")
      .with_limit(at.index, page_count_ - 1);
}

Status SealedPages::write(Block at, std::span<const std::byte> page, std::uint64_t version,
                          std::chrono::nanoseconds deadline) const {
  if (auto status = check(at, page.size()); !status) return status;
  SealBytes seal{};
  if (auto status = seal_page(page, at, version, seal); !status) return status;
  if (auto status = pages_.write(at, page, deadline); !status) return status;
  return seals_.write(seal_at(at), seal, deadline);
}

Result<std::uint64_t> SealedPages::read(Block at, std::span<std::byte> page,
                                        std::chrono::nanoseconds deadline) const {
  if (auto status = check(at, page.size()); !status) return status.error();
  constexpr std::chrono::seconds kUsual{10};
  const Deadline until = deadline_after(deadline > deadline.zero() ? deadline : kUsual);
  SealBytes seal{};
  while (true) {
    // In the order of the writer: then a reader that is about as fast as a writer without pauses
    // nearly always reads both of one version. In the other order it nearly never would.
    if (auto status = pages_.read(at, page, deadline); !status) return status.error();
    if (auto status = seals_.read(seal_at(at), seal, deadline); !status) return status.error();
    auto version = check_page(page, at, seal);
    if (version || version.error().code() != Code::kBusy || Clock::now() >= until) return version;
  }
}

}  // namespace remora
