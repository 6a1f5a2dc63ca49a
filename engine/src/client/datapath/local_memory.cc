#include "client/datapath/local_memory.h"

#include <cerrno>
#include <limits>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <remora/engine/buffer.h>

#include "base/core_dump.h"

namespace remora::detail {

namespace {
constexpr std::size_t round_up(std::size_t value, std::size_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}
}  // namespace

namespace {
/// At a fixed address: a function's static object would cost each operation with a slot its guard.
LocalMemory empty_slot{std::span<std::byte>{}};
}  // namespace

LocalMemory* LocalMemory::of_empty_slot() noexcept { return &empty_slot; }

Status LocalMemory::register_with(transport::MemoryDomain& domain, std::size_t domain_index) {
  if (registered(domain_index)) return {};
  const MutexLock lock{mutex_};
  if (registered(domain_index)) return {};
  auto registration = domain.register_bytes(bytes_);
  if (!registration) return registration.error();
  set_key_word(domain_index, kRegistered | (*registration)->local_key());
  registrations_[domain_index] = std::move(*registration);
  return {};
}

void LocalMemory::set_key_word(std::size_t domain_index, std::uint64_t word) noexcept {
  key_words_[domain_index].store(word, std::memory_order_release);
  if (!has_handles()) key_words_[domain_index + kAloneWords].store(word, std::memory_order_release);
}

void LocalMemory::renew_key(std::size_t domain_index) noexcept {
  const MutexLock lock{mutex_};
  auto& registration = registrations_[domain_index];
  if (registration == nullptr) return;
  const bool lost = registration->lost();
  set_key_word(domain_index, lost ? 0 : kRegistered | registration->local_key());
  if (lost) registration.reset();
}

std::span<std::byte> Slab::map_huge(std::size_t size_bytes, const Placement* placement) noexcept {
  const std::size_t rounded = round_up(size_bytes, kHugePageBytes);
  // Reserves the pages: fails here where they are not free.
  void* const address = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (address == MAP_FAILED) return {};
  const std::span bytes{static_cast<std::byte*>(address), rounded};
  (void)::madvise(address, rounded, MADV_DONTFORK);
  if (placement != nullptr) placement->place(bytes);
  // A limit of the cgroup or the cpuset would show at the first access only, as SIGBUS.
  if (::madvise(address, rounded, MADV_POPULATE_WRITE) != 0) {
    ::munmap(address, rounded);
    return {};
  }
  return bytes;
}

Result<Slab> Slab::map(std::size_t size_bytes, const SlabOptions& options) {
  const bool huge = options.huge_pages == HugePages::kAuto && size_bytes >= kHugePageBytes;
  if (huge)
    if (const auto bytes = map_huge(size_bytes, options.placement); !bytes.empty()) {
      keep_out_of_core_dumps(bytes, options.core_dump);
      return Slab{bytes, Pages::kHuge};
    }
  // 2 MiB more, so that the slab can begin at a multiple of 2 MiB.
  const std::size_t spare_bytes = huge ? kHugePageBytes : 0;
  void* const address = ::mmap(nullptr, size_bytes + spare_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno).with_subject("slab of slots");
  auto* const begin = static_cast<std::byte*>(address);
  if (!huge) {
    if (size_bytes >= kHugePageBytes) (void)::madvise(begin, size_bytes, MADV_NOHUGEPAGE);
    if (options.placement != nullptr) options.placement->place({begin, size_bytes});
    keep_out_of_core_dumps({begin, size_bytes}, options.core_dump);
    return Slab{{begin, size_bytes}, Pages::kOrdinary};
  }
  const std::size_t place = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t lead_bytes = round_up(place, kHugePageBytes) - place;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t kept_bytes = round_up(size_bytes, page_bytes);
  if (lead_bytes != 0) ::munmap(begin, lead_bytes);
  const std::size_t mapped_bytes = round_up(size_bytes + spare_bytes, page_bytes);
  if (const std::size_t tail_bytes = mapped_bytes - lead_bytes - kept_bytes; tail_bytes != 0)
    ::munmap(begin + lead_bytes + kept_bytes, tail_bytes);
  const bool taken = ::madvise(begin + lead_bytes, size_bytes, MADV_HUGEPAGE) == 0;
  if (options.placement != nullptr) options.placement->place({begin + lead_bytes, size_bytes});
  keep_out_of_core_dumps({begin + lead_bytes, size_bytes}, options.core_dump);
  return Slab{{begin + lead_bytes, size_bytes}, taken ? Pages::kTransparent : Pages::kOrdinary};
}

Slab::Slab(Slab&& other) noexcept : bytes_{std::exchange(other.bytes_, {})}, pages_{other.pages_} {}

Slab::~Slab() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<std::shared_ptr<SlotStore>> SlotStore::create(std::size_t slot_count, std::size_t slot_bytes,
                                                     const SlabOptions& options) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kMaxSlotBytes = std::size_t{1} << 30U;
  if (slot_bytes == 0 || slot_bytes > kMaxSlotBytes)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("slot_bytes: 1 byte to 1 GiB")
        .with_limit(slot_bytes, kMaxSlotBytes);
  if (slot_count == 0 || slot_count > kMaxSlots)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("count: 1 to 1048575 slots in one pool")
        .with_limit(slot_count, kMaxSlots);
  const std::size_t rounded = round_up(slot_bytes, kAlignment);
  if (slot_count > std::numeric_limits<std::size_t>::max() / 2 / rounded)
    return Error{Code::kOutOfMemory, "allocate_slots"}.with_subject("count times slot_bytes");
  auto slab = Slab::map(slot_count * rounded, options);
  if (!slab) return slab.error();
  return std::shared_ptr<SlotStore>{
      new SlotStore{std::move(*slab), slot_count, slot_bytes, rounded},
      [](SlotStore* store) { store->abandon(); }};
}

SlotStore::SlotStore(Slab slab, std::size_t slot_count, std::size_t slot_bytes,
                     std::size_t stride_bytes)
    : slab_{std::move(slab)},
      slot_bytes_{slot_bytes},
      stride_bytes_{stride_bytes},
      memory_{std::make_shared<LocalMemory>(slab_.bytes())},
      next_(slot_count) {
  for (std::size_t i = 0; i < slot_count; ++i)
    next_[i].store(i + 1 < slot_count ? static_cast<std::uint32_t>(i + 1) : kNone,
                   std::memory_order_relaxed);
}

void SlotStore::abandon() noexcept {
  if (over(head_.fetch_or(kAbandoned, std::memory_order_acq_rel) | kAbandoned)) delete this;
}

}  // namespace remora::detail

namespace remora {

RegisteredMemory::RegisteredMemory(std::shared_ptr<detail::LocalMemory> memory)
    : memory_{std::move(memory)} {
  if (memory_ != nullptr) bytes_ = memory_->bytes();
}

Target::Target(Slot& slot) noexcept
    : bytes_{slot.bytes_}, memory_{detail::LocalMemory::of_empty_slot()} {
  if (slot.store_ == nullptr) return;
  if (slot.store_->foreign()) [[unlikely]]
    bytes_ = {};
  else
    memory_ = slot.store_->memory().get();
}

Source::Source(const Slot& slot) noexcept
    : bytes_{slot.bytes_}, memory_{detail::LocalMemory::of_empty_slot()} {
  if (slot.store_ == nullptr) return;
  if (slot.store_->foreign()) [[unlikely]]
    bytes_ = {};
  else
    memory_ = slot.store_->memory().get();
}

void Slot::give_back() noexcept {
  std::exchange(store_, nullptr)->give_back(index_);
  bytes_ = {};
}

Slot SlotPool::take() noexcept {
  if (store_ == nullptr) [[unlikely]]
    return {};
  const std::uint32_t index = store_->take();
  if (index == detail::SlotStore::kNone) return {};
  return Slot{store_.pointer().get(), store_->slot(index), index};
}

std::size_t SlotPool::slot_bytes() const noexcept {
  return store_ == nullptr ? 0 : store_->slot_bytes();
}
std::size_t SlotPool::slot_count() const noexcept {
  return store_ == nullptr ? 0 : store_->slot_count();
}

}  // namespace remora
