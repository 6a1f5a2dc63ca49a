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

Result<ProtectionDomain> ProtectionDomain::for_one_thread() const {
  if (empty())
    return Error{Code::kInvalidArgument, "ibv_alloc_td"}.with_subject("no protection domain");
  const auto failed = [this](Operation call) {
    const int number = detail::errno_of(-1);
    const Error error = number == EOPNOTSUPP || number == ENOSYS
                            ? Error{Code::kUnsupported, call}.with_errno(number)
                            : detail::provider_error(call, number);
    return error.with_subject(device_.name());
  };
  const Provider& provider = device_.provider();
  ibv_td_init_attr none{};
  errno = 0;
  ibv_td* const thread = provider.alloc_td(device_.raw(), &none);
  if (thread == nullptr) return failed("ibv_alloc_td");
  const std::shared_ptr<ibv_td> kept{thread, [device = device_](ibv_td* td) {
                                       const int result = device.provider().dealloc_td(td);
                                       if (result != 0)
                                         report_teardown_failure(detail::provider_error(
                                             "ibv_dealloc_td", detail::errno_of(result)));
                                     }};
  ibv_parent_domain_init_attr of{};
  of.pd = domain_.get();
  of.td = thread;
  errno = 0;
  ibv_pd* const raw = provider.alloc_parent_domain(device_.raw(), &of);
  if (raw == nullptr) return failed("ibv_alloc_parent_domain");
  // The object is destroyed before the domains that it is made of.
  std::shared_ptr<ibv_pd> domain{raw, [device = device_, parent = domain_, kept](ibv_pd* pd) {
                                   const int result = device.provider().dealloc_pd(pd);
                                   if (result != 0)
                                     report_teardown_failure(detail::provider_error(
                                         "ibv_dealloc_pd", detail::errno_of(result)));
                                 }};
  ProtectionDomain made{std::move(domain), device_};
  made.base_ = base().domain_;
  return made;
}

Result<MemoryRegion> ProtectionDomain::register_bytes(std::span<std::byte> bytes,
                                                      Access access) const {
  return MemoryRegion::register_bytes(*this, bytes, access);
}

}  // namespace remora::verbs
