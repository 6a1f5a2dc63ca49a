#pragma once

/// Which client the tests use: that of C++, or, with REMORA_TEST_THROUGH_C, libremora.so.0 by the
/// classes of through_c/, which have the same names.

#include <remora/remora.h>

#ifdef REMORA_TEST_THROUGH_C
#include "through_c/client.h"
#endif

namespace remora::test {

#ifdef REMORA_TEST_THROUGH_C
using through_c::Completion;
using through_c::Completions;
using through_c::Engine;
using through_c::Queue;
using through_c::ReadPair;
using through_c::Region;
using through_c::RegisteredMemory;
using through_c::ReopenedRegion;
using through_c::Session;
using through_c::Slot;
using through_c::SlotPool;
using through_c::Source;
using through_c::Target;
using through_c::WritePair;
inline constexpr bool kThroughC = true;
#else
inline constexpr bool kThroughC = false;
#endif

}  // namespace remora::test
