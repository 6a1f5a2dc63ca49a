#pragma once

/// Makes text from files, peers and users safe for messages: no byte of it moves a terminal's
/// cursor.
///
/// Thread safety: pure functions.

#include <string>
#include <string_view>

namespace remora::config {

/// `text` on one line. Control characters are escaped as in C: `\n`, `\t`, `\r`, all others as
/// `\x1b`; so are the bytes of C1 control characters (U+0080 to U+009F), which some terminals obey,
/// and bytes that are not UTF-8. A backslash stays as it is.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace remora::config
