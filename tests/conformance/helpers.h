#pragma once

/// What other processes of the suite do. Keys of all: `uri` of a region.

#include "support/child.h"

namespace remora::test {

/// "contend": says "ready"; at the first line of its parent adds 1 `count` times to the word at 0
/// and swaps in +1 `count` times at 64; says the sum of what fetch_add returned.
int contend(const HelperArguments& arguments);

/// "hold": opens the region, says "ready" and adds 1 to the word at `offset` until an operation
/// fails or stdin ends; says "ended CODE", or "ended ok".
int hold(const HelperArguments& arguments);

/// "endure": as hold, but it connects again and goes on until its parent speaks or its session has
/// ended for good; then says "ok N uncertain N lost N resumed N ended REASON".
int endure(const HelperArguments& arguments);

/// "write-late": opens the region, says "ready"; at the first line of its parent writes 0xff over
/// its first block and says how that ended: "ok", or code and reason.
int write_late(const HelperArguments& arguments);

/// "inherited": says how many descriptors it was born with that belong to regions, devices or
/// sockets.
int inherited(const HelperArguments& arguments);

/// "fork": loads the region and verifies what it reads, while the process forks `rounds` times;
/// each child uses a handle of each kind and ends by returning from main(). Says "ready", then
/// "wrong N refused N interrupted N": bytes that were not right, operations that failed, and
/// interruptions.
int fork_under_load(const HelperArguments& arguments);

/// "closed-standard": closes 0, 1 and 2, then starts a server and uses it in every way that makes
/// descriptors. Says which of the three are open then, by what they are: "" where none is. Keys:
/// `transport`.
int closed_standard(const HelperArguments& arguments);

}  // namespace remora::test
