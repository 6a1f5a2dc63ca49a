#pragma once

/// The protection domain in which the queue pair of a client's lane is made.

#include <utility>

#include <remora/verbs/protection_domain.h>

#include "base/log.h"

namespace remora::transport::rdma {

/// A thread domain within `domain`, if the device supports it: the engine posts to a lane by one
/// thread at a time, so the provider needs no lock and no doorbell shared with other lanes.
/// Otherwise `domain` itself. Memory is registered with the base() of the result.
[[nodiscard]] inline verbs::ProtectionDomain thread_domain(const verbs::ProtectionDomain& domain) {
  auto made = domain.for_one_thread();
  if (made) return std::move(*made);
  log::debug("rdma: {}: no thread domain: {}", domain.device().name(), made.error().message());
  return domain;
}

}  // namespace remora::transport::rdma
