#include "transport/rdma/leased_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace remora::transport::rdma {

LeasedMemory::LeasedMemory(std::shared_ptr<void> hold, verbs::ProtectionDomain domain,
                           Budgets budgets, BudgetShare share,
                           std::vector<verbs::MemoryRegion> pieces) noexcept
    : hold_{std::move(hold)},
      domain_{std::move(domain)},
      budgets_{std::move(budgets)},
      share_{std::move(share)},
      pieces_{std::move(pieces)} {}

Result<std::shared_ptr<const LeasedMemory>> LeasedMemory::create(
    const verbs::Device& device, std::span<const MemoryStretch> pieces, std::shared_ptr<void> hold,
    Budgets budgets, const std::stop_token& stop) {
  auto share = BudgetShare::take(budgets.registrations, pieces.size());
  if (!share) return share.error();
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  std::vector<verbs::MemoryRegion> registered;
  registered.reserve(pieces.size());
  for (const MemoryStretch& piece : pieces) {
    if (stop.stop_requested()) return Error{Code::kCancelled, "register the pool"};
    auto memory = domain->register_bytes({piece.address, piece.length_bytes}, kAccess);
    if (!memory) return memory.error();
    registered.push_back(std::move(*memory));
  }
  std::sort(registered.begin(), registered.end(),
            [](const auto& a, const auto& b) { return a.address() < b.address(); });
  return std::shared_ptr<const LeasedMemory>{new LeasedMemory{std::move(hold), std::move(*domain),
                                                              std::move(budgets), std::move(*share),
                                                              std::move(registered)}};
}

std::optional<LeasedRange> LeasedMemory::find(const MemoryStretch& stretch) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(stretch.address);
  const auto behind =
      std::upper_bound(pieces_.begin(), pieces_.end(), address,
                       [](std::uint64_t at, const auto& piece) { return at < piece.address(); });
  if (behind == pieces_.begin()) return std::nullopt;
  const verbs::MemoryRegion& piece = *std::prev(behind);
  const std::uint64_t offset = address - piece.address();
  if (offset > piece.length_bytes() || stretch.length_bytes > piece.length_bytes() - offset)
    return std::nullopt;
  return LeasedRange{&piece, offset, stretch.length_bytes};
}

bool LeasedMemory::covers(std::span<const MemoryStretch> stretches) const noexcept {
  return std::all_of(stretches.begin(), stretches.end(),
                     [this](const MemoryStretch& each) { return find(each).has_value(); });
}

}  // namespace remora::transport::rdma
