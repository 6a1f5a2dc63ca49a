#pragma once

/// The shared libraries that this library needs, where a program has others of the same names.

#include <remora/result.h>

namespace remora::c {

/// To be called before the first engine or server of a process.
/// Errors: kUnsupported (the process uses functions of another version of protobuf).
Status check_libraries(Operation operation) noexcept;

}  // namespace remora::c
