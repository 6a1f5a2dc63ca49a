#pragma once

/// A signal at a defined step of a program, whatever the machine is doing meanwhile: the program's
/// main thread is traced, and stands still at the step until the signal has been dealt with.

#include <string>

namespace remora::testing {

/// Runs `argv` (ending in null), prints its process id to standard output, and sends it `signal`
/// where its main thread is about to
///   open a file that is named `step`, or
///   populate memory for the time that `step` says: "populate:2" is the second, or
///   read (write) a file at an offset, likewise: "pread:120", "pwrite:3".
/// Returns the program's exit status, 128 + N if signal N ended it, or 125 if it ended before the
/// step came.
int signal_at(const std::string& step, int signal, char** argv);

}  // namespace remora::testing
