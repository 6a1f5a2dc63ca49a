#pragma once

/// What a handle answers that was moved from: it has no core, and its functions say so.

#include <remora/metrics/registry.h>
#include <remora/result.h>

namespace remora::detail {

/// Not inline: the data path pays one comparison with null, and builds no error beside its code.
[[nodiscard, gnu::cold]] Error closed(Operation operation) noexcept;

/// A registry without series, for functions that return a reference. One for the process, made by
/// the first call.
[[nodiscard]] metrics::Registry& closed_registry() noexcept;

}  // namespace remora::detail
