#pragma once

/// A pthread_create() that fails when the test wants it to: linked into a test program, or as a
/// library that LD_PRELOAD brings into any program.

#include <cstddef>

extern "C" {

/// Of the threads that the process asks for from now on, counted from 0, those from `first` and
/// before `end` are refused with EAGAIN, as at a limit.
/// Preloaded: set at the start by REMORA_TEST_REFUSE_THREADS=FIRST-END.
void refuse_threads(std::size_t first, std::size_t end);
/// How many have been refused since.
std::size_t threads_refused();
}
