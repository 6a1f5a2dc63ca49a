#pragma once

/// Pages by which a reader recognizes whether they are whole. The seal is beside the page, not
/// within it, so that a page of 4096 bytes in a region of 4 KiB blocks has 4096 bytes of payload.
/// For seals within the block, which need one operation instead of two, see sealed_block.h.
///
///   auto pages = remora::SealedPages::over(region).value();       // the seals behind the pages
///   pages.write(remora::Block{7}, page, version).value();         // page: 4096 bytes
///   std::uint64_t version = pages.read(remora::Block{7}, page).value();
///
/// A read that overlaps a write may return any mixture of old and new bytes, of page and seal; the
/// seal's checksum covers the page and the seal, so a reader recognizes each mixture, and reads
/// again. The two writes need no order for that. Each page has one writer at a time: the
/// application must ensure that (by a lock, or an owner). A writer that dies between its two writes
/// leaves a page that is not whole until it is written again, as does a writer that dies while it
/// writes a sealed block.
///
/// A seal; numbers are little-endian:
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | CRC32C of the page, then of bytes 4 … 31 |
/// | 4 … 7   | "RMSP" |
/// | 8 … 15  | version, 1 or more |
/// | 16 … 23 | index of the page |
/// | 24 … 31 | zeroes |
///
/// The seal of page i is kPageSealBytes × i behind the beginning of the seals. A page and a seal of
/// zeroes, as in new regions, have version 0.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

/// The bytes of a page's seal.
inline constexpr std::size_t kPageSealBytes = 32;
/// The bytes of one seal, to write and to read.
using PageSeal = std::span<std::byte, kPageSealBytes>;
using PageSealView = std::span<const std::byte, kPageSealBytes>;

/// Fills `seal` for `page` (not empty) as the version `version` (not 0) of page `at`. For pages
/// that a queue or a coroutine transfers: write both, in any order. Errors: kInvalidArgument (an
/// empty page; version 0).
Status seal_page(std::span<const std::byte> page, Block at, std::uint64_t version,
                 PageSeal seal) noexcept;

/// The version of a page and a seal that were written together; 0 if both are zeroes. Errors:
/// kInvalidArgument (an empty page); kBusy: a mixture, another page's bytes, or never sealed.
Result<std::uint64_t> check_page(std::span<const std::byte> page, Block at,
                                 PageSealView seal) noexcept;

/// The pages of a region, which are its blocks, and the place of their seals. Copyable handle;
/// thread-safe. Errors of all functions: kClosed if it was made from a region that was moved from.
class SealedPages {
 public:
  /// Pages and seals in one region, with the seals in its last part: as many pages as fit. Errors:
  /// kInvalidArgument (no room for one page and its seal).
  static Result<SealedPages> over(const Region& region);
  /// Seals in a region of their own, from byte `seals_at` on: for as many pages as have room there.
  /// Both regions are written together, so keep them on one server. Errors: kInvalidArgument (no
  /// room for one seal).
  static Result<SealedPages> over(const Region& pages, const Region& seals,
                                  ByteOffset seals_at = ByteOffset{0});

  /// The pages that have a seal: their indices are 0 to page_count() - 1.
  [[nodiscard]] std::uint64_t page_count() const noexcept { return page_count_; }
  /// The size of the region's blocks.
  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return pages_.block_bytes(); }
  /// The place of a page's seal, in seals().
  [[nodiscard]] ByteOffset seal_at(Block page) const noexcept {
    return ByteOffset{seals_at_.bytes + page.index * kPageSealBytes};
  }
  /// The region of the pages, and that of the seals; the same one if the seals are in its last
  /// part.
  [[nodiscard]] const Region& pages() const noexcept { return pages_; }
  /// The region that has the seals. Borrowed from this object.
  [[nodiscard]] const Region& seals() const noexcept { return seals_; }

  /// Writes the page, then its seal: two operations, which both have `deadline`. Blocks, as
  /// Region::write. Errors: those of Region::write and seal_page; kInvalidArgument (not a page's
  /// length); kOutOfRange (no such page). After an error the page may not be whole: write it again.
  Status write(Block at, std::span<const std::byte> page, std::uint64_t version,
               std::chrono::nanoseconds deadline = {}) const;

  /// Reads the page and the seal until they belong together, and returns the version. Blocks.
  /// `page` is memory that may be written: nothing checks that (buffer.h). Errors: those of
  /// Region::read; kInvalidArgument (not a page's length); kOutOfRange; kBusy: no whole page before
  /// the deadline (zero: 10 s).
  Result<std::uint64_t> read(Block at, std::span<std::byte> page,
                             std::chrono::nanoseconds deadline = {}) const;

 private:
  SealedPages(Region pages, Region seals, ByteOffset seals_at, std::uint64_t page_count) noexcept
      : pages_{std::move(pages)},
        seals_{std::move(seals)},
        seals_at_{seals_at},
        page_count_{page_count} {}
  [[nodiscard]] Status check(Block at, std::size_t length_bytes) const noexcept;

  Region pages_;
  Region seals_;
  ByteOffset seals_at_;
  std::uint64_t page_count_;
};

}  // namespace remora
