#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include <remora/verbs/memory_region.h>
#include <remora/verbs/teardown.h>

#include "check_span.h"
#include "errors.h"
#include "window_set.h"

namespace remora::verbs {
namespace {

constexpr std::uint64_t kPageBytes = 4096;  // the granularity of the kernel's check of an iova

// The kernel answers ENOMEM (or EPERM, if the limit is 0) both for a full host and for a small
// limit: only the limit itself shows the reason.
Error registration_error(const Device& device, Operation operation, int number,
                         std::uint64_t asked_bytes, Access access) {
  if (number == ENOMEM || number == EPERM) {
    const MemlockState state = device.provider().memlock_state();
    const std::uint64_t free_bytes =
        state.limit_bytes > state.pinned_bytes ? state.limit_bytes - state.pinned_bytes : 0;
    if (!state.exempt && state.limit_bytes != UINT64_MAX && asked_bytes > free_bytes)
      return Error{Code::kOutOfMemory, operation}
          .with_errno(number)
          .with_reason(Reason::kMemlock)
          .with_subject(std::string{device.name()} + ": " + std::to_string(state.pinned_bytes) +
                        " bytes are pinned, the limit is " + std::to_string(state.limit_bytes))
          .with_limit(asked_bytes, free_bytes);
  }
  // The kernel answers only EINVAL if there is no on-demand paging.
  if (number == EINVAL && contains(access, Access::kOnDemand)) {
    const auto extended = device.query_extended();
    if (extended && !extended->on_demand_paging)
      return Error{Code::kUnsupported, operation}.with_errno(number).with_subject(device.name());
  }
  return detail::provider_error(operation, number).with_subject(device.name());
}

Status check_access(Access access, Operation operation) {
  if ((access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone &&
      !contains(access, Access::kLocalWrite))
    return Error{Code::kInvalidArgument, operation}.with_subject(
        "remote-write and remote-atomic need local-write");
  return {};
}

Status check_length(const Device& device, std::uint64_t length_bytes, Operation operation) {
  const std::uint64_t max = device.attributes().max_mr_bytes;
  if (length_bytes == 0)
    return Error{Code::kInvalidArgument, operation}.with_subject("no bytes").with_limit(0, max);
  if (length_bytes > max)
    return Error{Code::kLimitExceeded, operation}
        .with_subject(device.name())
        .with_limit(length_bytes, max);
  return {};
}

Status check_range(const ProtectionDomain& domain, std::span<std::byte> bytes, Access access,
                   Operation operation) {
  if (domain.empty())
    return Error{Code::kInvalidArgument, operation}.with_subject("no protection domain");
  if (const Status checked = detail::check_span(bytes, operation); !checked) return checked;
  if (const Status checked = check_access(access, operation); !checked) return checked;
  return check_length(domain.device(), bytes.size(), operation);
}

struct FreeBytes {
  void operator()(void* bytes) const noexcept { std::free(bytes); }
};

// Bytes of containers whose registration could not be undone. Never freed: the NIC may still access
// them.
std::atomic<void*>& unreleased() noexcept {
  static std::atomic<void*> first{nullptr};
  return first;
}

}  // namespace

Result<MemoryRegion> MemoryRegion::make(ibv_mr* mr, const ProtectionDomain& domain, Access access,
                                        std::uint64_t iova, std::unique_ptr<Keeper> keeper) {
  std::unique_ptr<ibv_mr, Deregister> owned{mr, Deregister{domain, nullptr, std::move(keeper)}};
  if (contains(access, Access::kWindowBind))
    owned.get_deleter().windows = std::make_shared<detail::WindowSet>();
  return MemoryRegion{std::move(owned), access, iova};
}

Result<MemoryRegion> MemoryRegion::register_bytes(const ProtectionDomain& domain,
                                                  std::span<std::byte> bytes, Access access) {
  return register_kept(domain, bytes, access, nullptr);
}

Result<MemoryRegion> MemoryRegion::register_kept(const ProtectionDomain& domain,
                                                 std::span<std::byte> bytes, Access access,
                                                 std::unique_ptr<Keeper> keeper) {
  const bool zero_based = contains(access, Access::kZeroBased);
  // Constants: clang 14 crashes on consteval temporaries in a conditional.
  constexpr Operation kZeroBased{"ibv_reg_mr_iova"};
  constexpr Operation kOrdinary{"ibv_reg_mr"};
  const Operation operation = zero_based ? kZeroBased : kOrdinary;
  if (const Status checked = check_range(domain, bytes, access, operation); !checked)
    return checked.error();
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (zero_based && address % kPageBytes != 0)
    return Error{Code::kInvalidArgument, operation}.with_subject(
        "zero-based bytes must begin at a page");
  const Device& device = domain.device();
  errno = 0;
  ibv_mr* const mr =
      zero_based
          ? device.provider().reg_mr_iova(domain.raw(), bytes.data(), bytes.size(), 0, bits(access))
          : device.provider().reg_mr(domain.raw(), bytes.data(), bytes.size(), bits(access));
  if (mr == nullptr)
    return registration_error(device, operation, detail::errno_of(-1), bytes.size(), access);
  return make(mr, domain, access, zero_based ? 0 : address, std::move(keeper));
}

Result<MemoryRegion> MemoryRegion::allocate(const ProtectionDomain& domain,
                                            std::size_t length_bytes, Access access) {
  constexpr Operation kOperation = "MemoryRegion::allocate";
  if (domain.empty())
    return Error{Code::kInvalidArgument, kOperation}.with_subject("no protection domain");
  if (const Status checked = check_length(domain.device(), length_bytes, kOperation); !checked)
    return checked.error();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t whole = (length_bytes + page - 1) / page * page;
  std::unique_ptr<void, FreeBytes> bytes{std::aligned_alloc(page, whole)};
  if (!bytes) return Error{Code::kOutOfMemory, kOperation}.with_subject("the host's memory");
  std::memset(bytes.get(), 0, whole);
  const std::span span{static_cast<std::byte*>(bytes.get()), length_bytes};
  return register_kept(domain, span, access,
                       std::make_unique<Kept<std::unique_ptr<void, FreeBytes>>>(std::move(bytes)));
}

Result<MemoryRegion> MemoryRegion::register_at(const ProtectionDomain& domain,
                                               std::span<std::byte> bytes, std::uint64_t iova,
                                               Access access) {
  constexpr Operation kOperation = "ibv_reg_mr_iova";
  if (const Status checked = check_range(domain, bytes, access, kOperation); !checked)
    return checked.error();
  if (bytes.size() > UINT64_MAX - iova)
    return Error{Code::kInvalidArgument, kOperation}
        .with_subject(detail::hexadecimal("bytes at iova ", iova) + " wrap around")
        .with_limit(bytes.size(), UINT64_MAX - iova);
  const std::uint64_t in_page = reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageBytes;
  if (iova % kPageBytes != in_page)
    return Error{Code::kInvalidArgument, kOperation}
        .with_subject("offset of the iova in its page")
        .with_limit(iova % kPageBytes, in_page);
  const Device& device = domain.device();
  errno = 0;
  ibv_mr* const mr =
      device.provider().reg_mr_iova(domain.raw(), bytes.data(), bytes.size(), iova, bits(access));
  if (mr == nullptr)
    return registration_error(device, kOperation, detail::errno_of(-1), bytes.size(), access);
  return make(mr, domain, access, iova, nullptr);
}

Result<MemoryRegion> MemoryRegion::register_dmabuf(const ProtectionDomain& domain, int fd,
                                                   std::uint64_t offset_bytes,
                                                   std::size_t length_bytes, std::uint64_t iova,
                                                   Access access) {
  constexpr Operation kOperation = "ibv_reg_dmabuf_mr";
  if (domain.empty() || fd < 0)
    return Error{Code::kInvalidArgument, kOperation}.with_subject(
        domain.empty() ? "no protection domain" : "no descriptor");
  if (const Status checked = check_access(access, kOperation); !checked) return checked.error();
  const Device& device = domain.device();
  if (const Status checked = check_length(device, length_bytes, kOperation); !checked)
    return checked.error();
  errno = 0;
  ibv_mr* const mr = device.provider().reg_dmabuf_mr(domain.raw(), offset_bytes, length_bytes, iova,
                                                     fd, static_cast<int>(bits(access)));
  if (mr == nullptr)
    return registration_error(device, kOperation, detail::errno_of(-1), length_bytes, access);
  auto region = make(mr, domain, access, iova, nullptr);
  region->mapped_ = false;
  return region;
}

Result<MemoryRegion> MemoryRegion::adopt(const ProtectionDomain& domain, ibv_mr* region,
                                         Access access) {
  if (domain.empty() || region == nullptr || region->pd != domain.raw())
    return Error{Code::kInvalidArgument, "MemoryRegion::adopt"}.with_subject(
        "a registration of that domain");
  return make(region, domain, access, reinterpret_cast<std::uintptr_t>(region->addr), nullptr);
}

Status MemoryRegion::advise(const ProtectionDomain& domain, Advice advice,
                            std::span<const LocalSlice> ranges, bool wait) {
  constexpr Operation kOperation = "ibv_advise_mr";
  if (domain.empty() || ranges.empty())
    return Error{Code::kInvalidArgument, kOperation}.with_subject(
        domain.empty() ? "no protection domain" : "no ranges");
  std::vector<ibv_sge> elements;
  elements.reserve(ranges.size());
  for (const LocalSlice& range : ranges) {
    if (!range.valid())
      return Error{Code::kInvalidArgument, kOperation}.with_subject("an invalid slice");
    elements.push_back(range.raw());
  }
  auto raw = IBV_ADVISE_MR_ADVICE_PREFETCH;
  if (advice == Advice::kPrefetchWrite) raw = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if (advice == Advice::kPrefetchNoFault) raw = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  const int result = domain.device().provider().advise_mr(
      domain.raw(), raw, wait ? IBV_ADVISE_MR_FLAG_FLUSH : 0, elements.data(),
      static_cast<std::uint32_t>(elements.size()));
  if (result == 0) return {};
  return detail::provider_error(kOperation, detail::errno_of(result))
      .with_subject(domain.device().name());
}

Result<LocalSlice> MemoryRegion::checked_slice(std::uint64_t offset_bytes,
                                               std::uint64_t length_bytes) const {
  const LocalSlice cut = slice(offset_bytes, length_bytes);
  if (cut.valid()) return cut;
  const std::uint64_t whole = mr_->length;
  return Error{Code::kOutOfRange, "MemoryRegion::slice"}.with_limit(
      length_bytes, offset_bytes > whole ? 0 : whole - offset_bytes);
}

int MemoryRegion::Deregister::deregister(ibv_mr* mr) noexcept {
  if (domain.device().foreign()) return 0;  // of a parent process: not touched
  if (windows) windows->free_all();
  errno = 0;
  const int result = domain.device().provider().dereg_mr(mr);
  if (result == 0) return 0;
  if (keeper) {
    Keeper* const kept = keeper.release();
    void* first = unreleased().load();
    do kept->next = static_cast<Keeper*>(first);
    while (!unreleased().compare_exchange_weak(first, kept));
  }
  return detail::errno_of(result);
}

Status MemoryRegion::deregister() && {
  ibv_mr* const mr = mr_.release();
  if (mr == nullptr) return Error{Code::kClosed, "ibv_dereg_mr"};
  const int number = mr_.get_deleter().deregister(mr);
  if (number != 0) return detail::provider_error("ibv_dereg_mr", number);
  return {};
}

void MemoryRegion::Deregister::operator()(ibv_mr* mr) noexcept {
  const int number = deregister(mr);
  if (number != 0) report_teardown_failure(detail::provider_error("ibv_dereg_mr", number));
}

std::ostream& operator<<(std::ostream& out, const MemoryRegion& region) {
  return out << region.remote() << " lkey " << region.lkey() << ' ' << region.access();
}

}  // namespace remora::verbs
