#pragma once

/// Tasks that several tests of coroutines run.

#include <cstddef>
#include <cstdint>

#include <remora/remora.h>

namespace remora::test {

/// Adds 1 to the word at `at`.
Task<Status> add_one(AsyncRegion in, ByteOffset at);
/// Adds 1 to the word at 0, `times` times.
Task<Status> add_many(AsyncRegion in, std::size_t times);
/// Adds 1 to the word at `at` again and again, until an operation fails. Its error.
Task<Status> add_until_it_ends(AsyncRegion in, ByteOffset at);

/// Writes noise(slot size, 5) from the slot to block 1, reads it into the same slot and compares.
Task<Status> write_and_read_back(AsyncRegion in, Slot slot);

/// Copies a block by way of `slot`.
Task<Status> move_block(AsyncRegion from, AsyncRegion to, std::uint64_t block, Slot slot);
/// Copies the first `count` blocks, `limit` of them at once, each by way of a slot of `slots`.
Task<Status> move_blocks(AsyncRegion from, AsyncRegion to, std::uint64_t count, SlotPool& slots,
                         std::size_t limit);

/// Begins 8 reads of 64 KiB in a scope and leaves it at once, which destroys their tasks; then adds
/// 1 to the word at 8. Fails the test where a destroyed task is resumed.
Task<Status> leave_reads_early(AsyncRegion in, SlotPool& slots);

}  // namespace remora::test
