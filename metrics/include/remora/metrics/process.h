#pragma once

/// The series every process of Remora exports about itself.

#include <string_view>

#include <remora/metrics/registry.h>
#include <remora/result.h>

namespace remora::metrics {

/// Registers `remora_build_info{version}` (always 1) and the standard `process_*` series: CPU
/// seconds, start time, resident and virtual bytes, open descriptors and their limit. They stay for
/// the registry's life and read /proc/self at each scrape (NaN if that fails). Errors: those of
/// registration; kAlreadyExists on a second call.
Status register_process_metrics(Registry& registry, std::string_view version);

}  // namespace remora::metrics
