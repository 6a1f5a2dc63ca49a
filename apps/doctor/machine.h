#pragma once

/// A machine as the checks see it: files below a root, and a few system calls. Unit tests replace
/// both by trees of files and by fixed answers.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "doctor/file_view.h"
#include "doctor/system_calls.h"

namespace remora::apps::doctor {

/// A machine to check. Borrows `calls`.
struct Machine {
  FileView files{};
  const SystemCalls& calls;

  [[nodiscard]] bool is_root() const { return calls.effective_user() == 0; }
};

/// The value after "NAME:" in a file with one field on each line, without blanks around it; empty:
/// no such field.
[[nodiscard]] std::string field(const FileView& files, const std::string& path,
                                std::string_view name);
/// A field of /proc/self/status.
[[nodiscard]] std::string status_field(const FileView& files, std::string_view name);
/// Whether a set of /proc/self/status ("CapEff", "CapBnd") has a capability, by its number.
[[nodiscard]] bool has_capability(const FileView& files, std::string_view set, unsigned capability);
/// A field of /proc/meminfo in KiB, converted to bytes; empty: no such field.
[[nodiscard]] std::optional<std::uint64_t> meminfo_bytes(const FileView& files,
                                                         std::string_view name);

/// Whether the list of a kernel file ("0-3,8") contains `number`.
[[nodiscard]] bool list_has(std::string_view list, unsigned number);
/// Whether two such lists have a number in common.
[[nodiscard]] bool lists_meet(std::string_view a, std::string_view b);

/// The decimal number at the start of `text`; empty: there is none.
[[nodiscard]] std::optional<std::uint64_t> leading_number(std::string_view text);
/// "8MiB", or "unlimited".
[[nodiscard]] std::string limit_text(std::uint64_t bytes);

}  // namespace remora::apps::doctor
