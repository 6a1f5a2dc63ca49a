#pragma once

/// The shared libraries that this one needs, where a program has others of the same names.

#include <remora/result.h>

namespace remora::c {

/// Before the first engine or server of a process.
/// Errors: kUnsupported (functions of another protobuf have taken the place of ours).
Status check_libraries(Operation operation) noexcept;

}  // namespace remora::c
