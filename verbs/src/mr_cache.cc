#include <algorithm>
#include <bit>
#include <new>
#include <unistd.h>

#include <remora/verbs/mr_cache.h>

#include "mr_cache_core.h"

namespace remora::verbs {

std::size_t MrLease::first_piece() const noexcept {
  const auto& pieces = registration_->rest->pieces;
  if (pieces.size() == 1) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const auto after = std::upper_bound(
      pieces.begin(), pieces.end(), begin,
      [](std::uintptr_t at, const MemoryRegion& piece) { return at < piece.address(); });
  return static_cast<std::size_t>(after - pieces.begin()) - 1;
}

std::size_t MrLease::piece_count() const noexcept {
  if (empty()) return 0;
  if (registration_->single) return 1;
  const auto& pieces = registration_->rest->pieces;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes_.data()) + bytes_.size();
  std::size_t last = first_piece();
  while (last + 1 < pieces.size() && pieces[last + 1].address() < end) ++last;
  return last - first_piece() + 1;
}

MrPiece MrLease::piece(std::size_t index) const noexcept {
  if (registration_->single)
    return {reinterpret_cast<std::uintptr_t>(bytes_.data()), bytes_.size(), registration_->lkey,
            registration_->rkey};
  const MemoryRegion& region = registration_->rest->pieces[first_piece() + index];
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const std::uint64_t from = std::max<std::uint64_t>(begin, region.address());
  const std::uint64_t to =
      std::min<std::uint64_t>(begin + bytes_.size(), region.address() + region.length_bytes());
  return {from, to - from, region.lkey(), region.rkey()};
}

LocalSlice MrLease::slice(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept {
  if (empty() || offset_bytes > bytes_.size() || length_bytes > bytes_.size() - offset_bytes ||
      length_bytes >= UINT32_MAX)
    return LocalSlice::invalid();
  MrLease part{registration_, bytes_.subspan(offset_bytes, length_bytes)};
  const MrPiece piece = part.piece(0);
  const LocalSlice cut =
      piece.length_bytes < length_bytes
          ? LocalSlice::invalid()
          : LocalSlice::unchecked(piece.address, static_cast<std::uint32_t>(length_bytes),
                                  piece.lkey);
  part.registration_ = nullptr;  // only a view of this lease
  return cut;
}

bool MrLease::device_gone(const void* word) noexcept {
  const auto& pieces = static_cast<const detail::CachedRegistration*>(word)->rest->pieces;
  return !pieces.empty() && pieces.front().domain().device().gone();
}

void MrLease::drop() noexcept {
  if (detail::CachedRegistration* const registration = std::exchange(registration_, nullptr))
    detail::MrCacheCore::release(registration);
  bytes_ = {};
}

void MrLease::drop_soon() noexcept {
  if (detail::CachedRegistration* const registration = std::exchange(registration_, nullptr))
    detail::MrCacheCore::release_soon(registration);
  bytes_ = {};
}

Result<MrCache> MrCache::create(const ProtectionDomain& domain, const MrCacheOptions& options) {
  const Error wrong{Code::kInvalidArgument, "MrCache::create"};
  if (domain.empty()) return wrong.with_subject("no protection domain");
  if (options.bytes_max == 0 || options.registrations_max == 0)
    return wrong.with_subject("a budget of 0");
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (!std::has_single_bit(options.piece_bytes) || options.piece_bytes < page_bytes)
    return wrong.with_subject("piece_bytes").with_limit(options.piece_bytes, page_bytes);
  auto core = std::make_shared<detail::MrCacheCore>(domain, options);
  if (const Status opened = core->open(); !opened) return opened.error();
  return MrCache{std::move(core)};
}

MrCache& MrCache::operator=(MrCache&& other) noexcept {
  MrCache old{std::move(*this)};
  core_ = std::move(other.core_);
  return *this;
}

MrCache::~MrCache() {
  if (core_ != nullptr) core_->close();
}

Result<MrLease> MrCache::acquire(std::span<std::byte> bytes, Access access, Deadline deadline) {
  if (core_ == nullptr) return remora::detail::closed_handle("MrCache::acquire", core_.foreign());
  try {
    return core_->acquire(bytes, access, deadline);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "MrCache::acquire"};
  }
}

MrLease MrCache::find(std::span<std::byte> bytes, Access access) noexcept {
  return core_ == nullptr ? MrLease{} : core_->find_kept(bytes, access);
}

std::size_t MrCache::trim() noexcept { return core_ == nullptr ? 0 : core_->trim(); }

std::size_t MrCache::invalidate(std::span<std::byte> bytes) {
  return core_ == nullptr ? 0 : core_->invalidate(bytes);
}

bool MrCache::automatic() const noexcept { return core_ != nullptr && core_->automatic(); }
std::string_view MrCache::why_not_automatic() const noexcept {
  if (core_.foreign()) return "made by a parent process";
  if (core_ == nullptr) return "moved from";
  return core_->automatic() ? std::string_view{} : core_->why_not();
}
MrCacheCounters MrCache::counters() const {
  return core_ == nullptr ? MrCacheCounters{} : core_->counters();
}

}  // namespace remora::verbs
