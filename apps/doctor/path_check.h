#pragma once

/// The path from this process to a server, step by step, on every transport.

#include <remora/remora.h>

#include "doctor/finding.h"

namespace remora::apps::doctor {

/// The addresses of the host's name. Green: `found` has them. Blocks until name servers answer.
[[nodiscard]] Findings check_name(const Uri& uri);

/// Removes the faults of a transport that the server does not offer. A pure function.
void excuse_absent(Findings& findings, const ServerInfo& server);

/// Connects over each transport (only over the URI's if it names one), creates a region for the
/// session if it may, and writes, reads, swaps and measures there. Without the right to create, it
/// reads from the region of the URI, or from the first region that it may read. It removes the
/// region that it has created; if it is killed, the region ends with its session. Blocks: each
/// request and operation for the engine's deadlines, and at most two seconds of measuring for each
/// transport.
[[nodiscard]] Findings check_path(const Engine& engine, const Uri& uri);

}  // namespace remora::apps::doctor
