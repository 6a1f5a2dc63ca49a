#pragma once

/// The fault of a range of this process, with its numbers. Internal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::verbs::detail {

/// `before` and `value` as 0x1f.
[[nodiscard]] std::string hexadecimal(std::string_view before, std::uint64_t value);

/// A span that is not empty and ends before the address space does. Errors: kInvalidArgument, with
/// the address in the subject; asked() is the length where there is one, allowed() what can be
/// there.
Status check_span(std::span<std::byte> bytes, Operation operation);

}  // namespace remora::verbs::detail
