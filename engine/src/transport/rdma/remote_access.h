#pragma once

#include <remora/engine/types.h>
#include <remora/verbs/access.h>
#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// The remote access rights of a grant.
[[nodiscard]] verbs::Access remote_access(Rights rights) noexcept;
/// The same, without rights that the device refuses: atomics if it has none.
[[nodiscard]] verbs::Access remote_access(Rights rights, const verbs::Device& device) noexcept;

}  // namespace remora::transport::rdma
