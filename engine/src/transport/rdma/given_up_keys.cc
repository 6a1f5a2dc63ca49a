#include "transport/rdma/given_up_keys.h"

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

/// User addresses are below 2^48 on every processor for which Linux supports RDMA.
constexpr unsigned kAddressBits = 48;
constexpr std::uint64_t kMaxMoves = (std::uint64_t{1} << (64 - kAddressBits)) - 1;

Error key_returned() {
  return Error{Code::kProvider, "ibv_reg_mr"}.with_subject("keys that were given up return");
}

}  // namespace

void GivenUpKeys::remember(std::uint32_t key, const Range& range) {
  if (order_.size() == kMax) {
    keys_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(keys_.emplace(key, range));
}

void GivenUpKeys::add(const verbs::MemoryRegion& memory) noexcept try {
  const remora::detail::MutexLock lock{mutex_};
  remember(memory.rkey(), {memory.address(), memory.length_bytes()});
} catch (const std::bad_alloc&) {
  return;
}

void GivenUpKeys::add_all(const GivenUpKeys& other) noexcept try {
  if (&other == this) return;
  std::vector<std::pair<std::uint32_t, Range>> theirs;
  std::uint64_t moved = 0;
  {
    const remora::detail::MutexLock lock{other.mutex_};
    theirs.reserve(other.order_.size());
    for (const auto& each : other.order_) theirs.emplace_back(each->first, each->second);
    moved = other.moved_;
  }
  const remora::detail::MutexLock lock{mutex_};
  moved_ = std::max(moved_, moved);  // so that none of their addresses is used again
  for (const auto& [key, range] : theirs) remember(key, range);
} catch (const std::bad_alloc&) {
  return;
}

bool GivenUpKeys::reaches(const verbs::MemoryRegion& memory) const {
  const remora::detail::MutexLock lock{mutex_};
  const auto [first, last] = keys_.equal_range(memory.rkey());
  return std::any_of(first, last, [&](const auto& each) {
    const Range& range = each.second;
    return range.address < memory.address() + memory.length_bytes() &&
           memory.address() < range.address + range.length_bytes;
  });
}

Result<verbs::MemoryRegion> GivenUpKeys::register_bytes(const verbs::ProtectionDomain& domain,
                                                        std::span<std::byte> bytes,
                                                        verbs::Access access,
                                                        std::vector<verbs::MemoryRegion>& aside) {
  auto first = domain.register_bytes(bytes, access);
  if (!first || !reaches(*first)) return first;
  // This registration is set aside until the next one is made, so that the device cannot give its
  // key again. The next one begins at another address, which no key of this domain has had, so it
  // does not matter how many freed keys the device keeps.
  std::uint64_t move = 0;
  {
    const remora::detail::MutexLock lock{mutex_};
    move = moved_++ % kMaxMoves + 1;
  }
  const std::uint64_t address =
      reinterpret_cast<std::uintptr_t>(bytes.data()) + (move << kAddressBits);
  const std::uint32_t returned = first->rkey();
  aside.push_back(std::move(*first));
  auto second = verbs::MemoryRegion::register_at(domain, bytes, address, access);
  if (!second) return second;
  log::debug("rdma: {} gave key {:#x} again: these {} bytes are registered at {:#x}",
             domain.device().name(), returned, bytes.size(), address);
  if (!reaches(*second)) return second;
  aside.push_back(std::move(*second));
  return key_returned();
}

Result<verbs::MemoryRegion> GivenUpKeys::register_again(const verbs::ProtectionDomain& domain,
                                                        std::span<std::byte> bytes,
                                                        std::uint64_t address, verbs::Access access,
                                                        std::vector<verbs::MemoryRegion>& aside) {
  const bool moved = address != reinterpret_cast<std::uintptr_t>(bytes.data());
  // The registrations that are set aside stay until the last one is made, so that the device cannot
  // give their keys again.
  for (std::size_t tried = 0; tried <= kMaxAside; ++tried) {
    auto made = moved ? verbs::MemoryRegion::register_at(domain, bytes, address, access)
                      : domain.register_bytes(bytes, access);
    if (!made || !reaches(*made)) return made;
    log::debug("rdma: {} gave key {:#x} again: {} bytes are registered at {:#x} once more",
               domain.device().name(), made->rkey(), bytes.size(), address);
    aside.push_back(std::move(*made));
  }
  return key_returned();
}

}  // namespace remora::transport::rdma
