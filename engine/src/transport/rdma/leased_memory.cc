#include "transport/rdma/leased_memory.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <remora/assert.h>

#include "base/parallel_steps.h"

namespace remora::transport::rdma {
namespace {

/// The number of threads that register the pool, and the number of bytes from which a second thread
/// saves time. More threads wait for the kernel, which counts the pinned pages of a process.
constexpr std::size_t kMaxRegistrars = 4;
constexpr std::uint64_t kRegistrarBytes = std::uint64_t{1} << 30U;

/// Registers `pieces`; the result has their order. Several threads register a large pool.
Result<std::vector<verbs::MemoryRegion>> register_all(
    const verbs::ProtectionDomain& domain, std::span<const MemoryStretch> pieces,
    const std::stop_token& stop, const std::function<void(std::uint64_t)>& on_step) {
  std::uint64_t all_bytes = 0;
  for (const MemoryStretch& piece : pieces) all_bytes += piece.length_bytes;
  std::vector<std::optional<verbs::MemoryRegion>> made(pieces.size());
  const auto register_one = [&](std::size_t index) -> Status {
    const MemoryStretch& piece = pieces[index];
    auto memory = domain.register_bytes({piece.address, piece.length_bytes}, LeasedMemory::kAccess);
    if (!memory) return memory.error();
    made[index].emplace(std::move(*memory));
    return {};
  };
  remora::detail::StepOptions options{
      .threads_max = std::min<std::uint64_t>(
          {kMaxRegistrars, remora::detail::usable_processors(), all_bytes / kRegistrarBytes}),
      .stop = stop};
  if (on_step)
    options.on_step = [&](std::size_t done) {
      on_step(done == made.size() ? all_bytes : all_bytes / made.size() * done);
    };
  const remora::detail::StepsDone steps =
      remora::detail::run_steps(pieces.size(), register_one, options);
  if (steps.failed) return *steps.failed;
  if (steps.stopped) return Error{Code::kCancelled, "register the pool"};
  std::vector<verbs::MemoryRegion> registered;
  registered.reserve(pieces.size());
  for (std::optional<verbs::MemoryRegion>& each : made) {
    REMORA_ASSERT(each.has_value(), "a run without a failure has registered each piece");
    registered.push_back(std::move(*each));
  }
  return registered;
}

}  // namespace

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
    Budgets budgets, const std::stop_token& stop,
    const std::function<void(std::uint64_t done_bytes)>& on_step) {
  auto share = BudgetShare::take(budgets.registrations, pieces.size());
  if (!share) return share.error();
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  auto made = register_all(*domain, pieces, stop, on_step);
  if (!made) return made.error();
  std::vector<verbs::MemoryRegion> registered = std::move(*made);
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
