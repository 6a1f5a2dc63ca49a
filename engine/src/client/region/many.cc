/// The functions of remora/engine/many.h, also those of Region.

#include <remora/engine/many.h>
#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/region/many_call.h"
#include "client/region/region_grant.h"

namespace remora::detail {

/// Reads the cores of regions, which are private.
class ManyRegions {
 public:
  [[nodiscard]] static const OwnedShared<RegionGrant>& core_of(const Region& region) noexcept {
    return region.core_;
  }
};

namespace {

/// Whether a call with so many pairs may begin.
[[nodiscard]] bool may_begin(std::size_t count, const ManyOptions& options) noexcept {
  return count <= kMaxMany && (options.each.empty() || options.each.size() == count);
}
/// Why may_begin() is false.
[[nodiscard, gnu::cold, gnu::noinline]] Error refusal_of(Operation operation, std::size_t count,
                                                         const ManyOptions& options) noexcept {
  if (count > kMaxMany)
    return Error{Code::kLimitExceeded, operation}.with_subject("pairs").with_limit(count, kMaxMany);
  return Error{Code::kInvalidArgument, operation}
      .with_subject("each: one outcome a pair")
      .with_limit(options.each.size(), count);
}

template <typename Pair>
Status run_many(Operation operation, const RegionGrant& region, std::span<Pair> pairs,
                const ManyOptions& options) noexcept {
  if (!may_begin(pairs.size(), options)) [[unlikely]]
    return refusal_of(operation, pairs.size(), options);
  if (pairs.empty()) return {};
  ManyCall call{region.session(), kOpcodeOf<Pair>, options};
  if (!call.ready()) return region.named(Error{Code::kOutOfMemory, operation});
  call.add_only(region, pairs);
  return call.finish();
}

/// The session of all regions; null, with the error, if the call may not begin.
template <typename RegionPairs>
Result<SessionCore*> session_of(Operation operation, std::span<const RegionPairs> regions,
                                const ManyOptions& options) noexcept {
  SessionCore* session = nullptr;
  std::size_t count = 0;
  for (const RegionPairs& each : regions) {
    if (each.region == nullptr)
      return Error{Code::kInvalidArgument, operation}.with_reason(Reason::kNullPointer);
    const auto& core = ManyRegions::core_of(*each.region);
    if (core == nullptr) return closed(operation, core);
    if (session != nullptr && session != &core->session())
      return Error{Code::kInvalidArgument, operation}.with_subject("a region of another session");
    session = &core->session();
    // The sum cannot overflow before it is too large.
    count += each.pairs.size();
    if (count > kMaxMany) break;
  }
  if (!may_begin(count, options)) return refusal_of(operation, count, options);
  return session;
}

template <typename RegionPairs>
Status run_many(Operation operation, std::span<const RegionPairs> regions,
                const ManyOptions& options) noexcept {
  using Pair = typename decltype(RegionPairs::pairs)::element_type;
  const auto session = session_of(operation, regions, options);
  if (!session) return session.error();
  if (*session == nullptr) return {};  // no regions
  ManyCall call{**session, kOpcodeOf<Pair>, options};
  if (!call.ready()) return Error{Code::kOutOfMemory, operation};
  for (const RegionPairs& each : regions) call.add(*ManyRegions::core_of(*each.region), each.pairs);
  return call.finish();
}

}  // namespace

}  // namespace remora::detail

namespace remora {

using detail::closed;

Status Region::read_many(std::span<const ReadPair> pairs, const ManyOptions& options) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("read_many", core_);
  return detail::run_many("read_many", *core_, pairs, options);
}

Status Region::write_many(std::span<const WritePair> pairs, const ManyOptions& options) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write_many", core_);
  return detail::run_many("write_many", *core_, pairs, options);
}

Status Region::fetch_add_many(std::span<FetchAddPair> pairs, const ManyOptions& options) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("fetch_add_many", core_);
  return detail::run_many("fetch_add_many", *core_, pairs, options);
}

Status Region::compare_swap_many(std::span<CompareSwapPair> pairs,
                                 const ManyOptions& options) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("compare_swap_many", core_);
  return detail::run_many("compare_swap_many", *core_, pairs, options);
}

Status read_many(std::span<const RegionReads> regions, const ManyOptions& options) {
  return detail::run_many("read_many", regions, options);
}
Status write_many(std::span<const RegionWrites> regions, const ManyOptions& options) {
  return detail::run_many("write_many", regions, options);
}
Status fetch_add_many(std::span<const RegionFetchAdds> regions, const ManyOptions& options) {
  return detail::run_many("fetch_add_many", regions, options);
}
Status compare_swap_many(std::span<const RegionCompareSwaps> regions, const ManyOptions& options) {
  return detail::run_many("compare_swap_many", regions, options);
}

}  // namespace remora
