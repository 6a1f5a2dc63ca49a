#include "client/datapath/local_memory.h"

#include <utility>

#include <remora/assert.h>
#include <remora/engine/buffer.h>

namespace remora::detail {

LocalMemory LocalMemory::empty_slot{std::span<std::byte>{}};

Status LocalMemory::register_with(transport::MemoryDomain& domain, std::size_t domain_index) {
  if (registered(domain_index)) return {};
  REMORA_ASSERT(domain_index < kMaxMemoryDomains, "memory without a domain needs no registration");
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
  const auto& registration = registrations_[domain_index];
  if (registration == nullptr) return;
  set_key_word(domain_index, registration->lost() ? 0 : kRegistered | registration->local_key());
}

void LocalMemory::forget_key(std::size_t domain_index) noexcept {
  const MutexLock lock{mutex_};
  set_key_word(domain_index, 0);
  registrations_[domain_index].reset();
}

}  // namespace remora::detail

namespace remora {

RegisteredMemory::RegisteredMemory(std::shared_ptr<detail::LocalMemory> memory)
    : memory_{std::move(memory)} {
  if (memory_ != nullptr) bytes_ = memory_->bytes();
}

}  // namespace remora
