#pragma once

/// Text that comes from other programs.

#include <cstddef>
#include <string_view>

namespace remora::detail {

/// Bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
/// Source: RFC 3629, section 4.
[[nodiscard]] std::size_t character_bytes(std::string_view text) noexcept;

}  // namespace remora::detail
