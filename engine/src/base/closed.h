#pragma once

/// Results of the functions of a closed handle: one that was moved from, or that a parent process
/// made. Such a handle has no core.

#include <remora/metrics/registry.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::detail {

/// The Error for a function of `handle`, which is null: its subject is the reason why the handle is
/// closed.
template <typename Pointer>
[[nodiscard]] Error closed(Operation operation, const Owned<Pointer>& handle) noexcept {
  return closed_handle(operation, handle.foreign());
}

/// A registry without series, for functions that return a reference. The process has one; the first
/// call makes it.
[[nodiscard]] metrics::Registry& closed_registry() noexcept;

}  // namespace remora::detail
