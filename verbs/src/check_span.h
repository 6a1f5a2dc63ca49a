#pragma once

/// The error of an invalid range of this process's memory, with its numbers. Internal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::verbs::detail {

/// `before`, then `value` as 0x1f.
[[nodiscard]] std::string hexadecimal(std::string_view before, std::uint64_t value);

/// Checks that the span is not empty and ends before the end of the address space. Errors:
/// kInvalidArgument, with the address in the subject; asked() is the length, if it is not 0,
/// allowed() the largest possible length.
Status check_span(std::span<std::byte> bytes, Operation operation);

}  // namespace remora::verbs::detail
