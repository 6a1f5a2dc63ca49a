#include <cerrno>

#include <remora/verbs/memory_region.h>
#include <remora/verbs/teardown.h>

#include "errors.h"

namespace remora::verbs {
namespace {

// The kernel answers ENOMEM (or EPERM, where the limit is 0) both for a full host and for a small
// limit: only the limit itself tells which.
Error registration_error(const Provider& provider, int number, std::uint64_t asked_bytes) {
  if (number == ENOMEM || number == EPERM) {
    const MemlockState state = provider.memlock_state();
    const std::uint64_t free_bytes =
        state.limit_bytes > state.pinned_bytes ? state.limit_bytes - state.pinned_bytes : 0;
    if (!state.exempt && state.limit_bytes != UINT64_MAX && asked_bytes > free_bytes)
      return Error{Code::kOutOfMemory, "ibv_reg_mr"}
          .with_errno(number)
          .with_reason(Reason::kMemlock)
          .with_limit(asked_bytes, free_bytes);
  }
  return detail::provider_error("ibv_reg_mr", number);
}

}  // namespace

Result<MemoryRegion> MemoryRegion::register_bytes(const ProtectionDomain& domain,
                                                  std::span<std::byte> bytes, Access access) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (domain.empty() || bytes.empty() || bytes.data() == nullptr)
    return Error{Code::kInvalidArgument, "ibv_reg_mr"};
  if (bytes.size() > UINTPTR_MAX - address)
    return Error{Code::kInvalidArgument, "ibv_reg_mr"}.with_subject("the range wraps around");
  if ((access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone &&
      !contains(access, Access::kLocalWrite))
    return Error{Code::kInvalidArgument, "ibv_reg_mr"}.with_subject(
        "remote-write and remote-atomic need local-write");
  const Device& device = domain.device();
  if (bytes.size() > device.attributes().max_mr_bytes)
    return Error{Code::kLimitExceeded, "ibv_reg_mr"}
        .with_subject(device.name())
        .with_limit(bytes.size(), device.attributes().max_mr_bytes);
  errno = 0;
  ibv_mr* const mr =
      device.provider().reg_mr(domain.raw(), bytes.data(), bytes.size(), bits(access));
  if (mr == nullptr)
    return registration_error(device.provider(), detail::errno_of(-1), bytes.size())
        .with_subject(device.name());
  return MemoryRegion{mr, domain, access};
}

Result<LocalSlice> MemoryRegion::checked_slice(std::uint64_t offset_bytes,
                                               std::uint64_t length_bytes) const {
  const LocalSlice cut = slice(offset_bytes, length_bytes);
  if (cut.valid()) return cut;
  const std::uint64_t whole = mr_->length;
  return Error{Code::kOutOfRange, "MemoryRegion::slice"}.with_limit(
      length_bytes, offset_bytes > whole ? 0 : whole - offset_bytes);
}

Status MemoryRegion::deregister() && {
  const Deregister deleter = mr_.get_deleter();
  ibv_mr* const mr = mr_.release();
  if (mr == nullptr) return Error{Code::kClosed, "ibv_dereg_mr"};
  const int result = deleter.domain.device().provider().dereg_mr(mr);
  if (result != 0) return detail::provider_error("ibv_dereg_mr", detail::errno_of(result));
  return {};
}

void MemoryRegion::Deregister::operator()(ibv_mr* mr) const noexcept {
  const int result = domain.device().provider().dereg_mr(mr);
  if (result != 0)
    report_teardown_failure(detail::provider_error("ibv_dereg_mr", detail::errno_of(result)));
}

}  // namespace remora::verbs
