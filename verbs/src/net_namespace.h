#pragma once

/// The reason why there is no device: another network namespace may have it. Internal.

#include <remora/result.h>
#include <remora/verbs/provider.h>

namespace remora::verbs::detail {

/// Whether each network namespace has RDMA devices of its own (`rdma system`: "netns exclusive").
/// Needs no privilege. False if the kernel does not tell.
[[nodiscard]] bool devices_are_by_namespace();

/// kNotFound from `operation`; if devices belong to network namespaces, with the namespace of this
/// process as subject.
[[nodiscard]] Error no_device(const Provider& provider, Operation operation);

}  // namespace remora::verbs::detail
