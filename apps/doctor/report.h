#pragma once

/// Findings as text for a person, as JSON for a script, and as a bundle for a bug report.
///
/// Thread safety: pure functions, except bundle_text(), which reads the machine's files.

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/checks.h"
#include "doctor/devices.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace remora::apps::doctor {

/// A block for each finding: colour, id, observation; reason; command. The last lines count the
/// colours and say what root would find in addition. Control characters are escaped.
void print_findings(std::ostream& out, const Findings& findings);

/// {"colour", "findings": [{"id", "colour", "found", "why", "command", "details", "root_adds"}],
/// "counts": {"green", "not checked", "yellow", "red"}, "root_adds": [TEXT]}.
[[nodiscard]] nlohmann::ordered_json findings_json(const Findings& findings);

/// The data for a bug report, without secrets: only sizes, limits, addresses and transports of the
/// configuration; never keys, tokens, passwords, or other values from files or from the
/// environment.
[[nodiscard]] std::string bundle_text(const Machine& machine, const Needs& needs,
                                      const std::vector<DeviceView>& devices,
                                      const Findings& findings, std::string_view version);

}  // namespace remora::apps::doctor
