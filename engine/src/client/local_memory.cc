#include "client/local_memory.h"

#include <cerrno>
#include <limits>
#include <sys/mman.h>
#include <utility>

#include <remora/engine/buffer.h>

namespace remora::detail {

Status LocalMemory::register_with(transport::MemoryDomain& domain, std::size_t domain_index) {
  Entry& entry = entries_[domain_index];
  if (entry.ready.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock{mutex_};
  if (entry.ready.load(std::memory_order_relaxed)) return {};
  auto registration = domain.register_bytes(bytes_);
  if (!registration) return registration.error();
  entry.registration = std::move(*registration);
  entry.key = entry.registration->local_key();
  entry.ready.store(true, std::memory_order_release);
  return {};
}

Result<Slab> Slab::map(std::size_t size_bytes) {
  constexpr std::size_t kHugePageBytes = 2U << 20U;
  void* address =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno).with_subject("slab of slots");
  if (size_bytes >= kHugePageBytes) ::madvise(address, size_bytes, MADV_HUGEPAGE);
  return Slab{{static_cast<std::byte*>(address), size_bytes}};
}

Slab::Slab(Slab&& other) noexcept : bytes_{std::exchange(other.bytes_, {})} {}

Slab::~Slab() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<std::shared_ptr<SlotStore>> SlotStore::create(std::size_t slot_count,
                                                     std::size_t slot_bytes) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kSlotBytesMax = std::size_t{1} << 30U;
  if (slot_bytes == 0 || slot_bytes > kSlotBytesMax)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("the size of slots must be positive, and at most 1 GiB")
        .with_limit(slot_bytes, kSlotBytesMax);
  if (slot_count == 0 || slot_count > kSlotsMax)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("the number of slots must be positive")
        .with_limit(slot_count, kSlotsMax);
  const std::size_t rounded = (slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (slot_count > std::numeric_limits<std::size_t>::max() / 2 / rounded)
    return Error{Code::kOutOfMemory, "allocate_slots"};
  auto slab = Slab::map(slot_count * rounded);
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

std::span<std::byte> RegisteredMemory::bytes() const noexcept {
  return memory_ == nullptr ? std::span<std::byte>{} : memory_->bytes();
}

namespace {
bool within(std::span<std::byte> whole, std::size_t offset, std::size_t length_bytes) noexcept {
  return offset <= whole.size() && length_bytes <= whole.size() - offset;
}
}  // namespace

Target::Target(const RegisteredMemory& memory, std::size_t offset,
               std::size_t length_bytes) noexcept
    : memory_{memory.memory_.get()}, valid_{within(memory.bytes(), offset, length_bytes)} {
  if (valid_) bytes_ = memory.bytes().subspan(offset, length_bytes);
}

Target::Target(Slot& slot) noexcept : bytes_{slot.bytes_}, valid_{slot.store_ != nullptr} {
  if (valid_) memory_ = slot.store_->memory().get();
}

Source::Source(const RegisteredMemory& memory, std::size_t offset,
               std::size_t length_bytes) noexcept
    : memory_{memory.memory_.get()}, valid_{within(memory.bytes(), offset, length_bytes)} {
  if (valid_) bytes_ = memory.bytes().subspan(offset, length_bytes);
}

Source::Source(const Slot& slot) noexcept : bytes_{slot.bytes_}, valid_{slot.store_ != nullptr} {
  if (valid_) memory_ = slot.store_->memory().get();
}

void Slot::give_back() noexcept {
  std::exchange(store_, nullptr)->give_back(index_);
  bytes_ = {};
}

Slot SlotPool::take() noexcept {
  const std::uint32_t index = store_->take();
  if (index == detail::SlotStore::kNone) return {};
  return Slot{store_.get(), store_->slot(index), index};
}

std::size_t SlotPool::slot_bytes() const noexcept { return store_->slot_bytes(); }
std::size_t SlotPool::slot_count() const noexcept { return store_->slot_count(); }

}  // namespace remora
