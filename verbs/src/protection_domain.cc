#include <cerrno>

#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/teardown.h>

#include "errors.h"

namespace remora::verbs {

Result<ProtectionDomain> ProtectionDomain::allocate(const Device& device) {
  if (device.empty())
    return Error{Code::kInvalidArgument, "ibv_alloc_pd"}.with_subject("no device");
  errno = 0;
  ibv_pd* const raw = device.provider().alloc_pd(device.raw());
  if (raw == nullptr)
    return detail::provider_error("ibv_alloc_pd", detail::errno_of(-1)).with_subject(device.name());
  std::shared_ptr<ibv_pd> domain{raw, [device](ibv_pd* pd) {
                                   const int result = device.provider().dealloc_pd(pd);
                                   if (result != 0)
                                     report_teardown_failure(detail::provider_error(
                                         "ibv_dealloc_pd", detail::errno_of(result)));
                                 }};
  return ProtectionDomain{std::move(domain), device};
}

Result<MemoryRegion> ProtectionDomain::register_bytes(std::span<std::byte> bytes,
                                                      Access access) const {
  return MemoryRegion::register_bytes(*this, bytes, access);
}

}  // namespace remora::verbs
