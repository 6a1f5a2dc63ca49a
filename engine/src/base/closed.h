#pragma once

/// The answers of a handle that was moved from, or that a parent process made: it has no core, and
/// its functions say so.

#include <remora/metrics/registry.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::detail {

/// `handle` is null: the error says why.
template <typename Pointer>
[[nodiscard]] Error closed(Operation operation, const Owned<Pointer>& handle) noexcept {
  return closed_handle(operation, handle.foreign());
}

/// A registry without series, for functions that return a reference. One for the process, made by
/// the first call.
[[nodiscard]] metrics::Registry& closed_registry() noexcept;

}  // namespace remora::detail
