#include "async_tasks.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <utility>

#include "support/expect.h"
#include "support/pattern.h"

namespace remora::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

Task<Status> add_one(AsyncRegion in, ByteOffset at) {
  const auto before = co_await in.fetch_add(at, 1);
  co_return before ? Status{} : Status{before.error()};
}

Task<Status> add_many(AsyncRegion in, std::size_t times) {
  for (std::size_t i = 0; i < times; ++i)
    if (const auto before = co_await in.fetch_add(ByteOffset{0}, 1); !before)
      co_return before.error();
  co_return Status{};
}

Task<Status> add_until_it_ends(AsyncRegion in, ByteOffset at) {
  while (true)
    if (const auto before = co_await in.fetch_add(at, 1); !before) co_return before.error();
}

Task<Status> write_and_read_back(AsyncRegion in, Slot slot) {
  fill(slot.bytes(), 5);
  auto back = co_await in.write(Block{1}, std::move(slot));
  if (!back) co_return back.error();
  std::fill(back->bytes().begin(), back->bytes().end(), std::byte{0});
  auto seen = co_await in.read(Block{1}, std::move(*back));
  if (!seen) co_return seen.error();
  EXPECT_TRUE(same_bytes(seen->bytes(), noise(seen->bytes().size(), 5)));
  co_return Status{};
}

Task<Status> move_block(AsyncRegion from, AsyncRegion to, std::uint64_t block, Slot slot) {
  auto filled = co_await from.read(Block{block}, std::move(slot));
  if (!filled) co_return filled.error();
  auto written = co_await to.write(Block{block}, std::move(*filled));
  if (!written) co_return written.error();
  co_return Status{};
}

Task<Status> move_blocks(AsyncRegion from, AsyncRegion to, std::uint64_t count, SlotPool& slots,
                         std::size_t limit) {
  Scope scope{limit};
  for (std::uint64_t block = 0; block < count; ++block) {
    Slot slot = slots.take();
    EXPECT_TRUE(slot);
    co_await scope.spawn(move_block(from, to, block, std::move(slot)));
  }
  co_return co_await scope.join();
}

namespace {

Task<Status> read_that_is_destroyed(AsyncRegion in, Slot slot, ByteOffset at) {
  auto seen = co_await in.read(at, std::move(slot));
  ADD_FAILURE() << "a destroyed task was resumed";
  co_return seen ? Status{} : Status{seen.error()};
}

}  // namespace

Task<Status> leave_reads_early(AsyncRegion in, SlotPool& slots) {
  {
    Scope scope{8};
    for (std::uint64_t i = 0; i < 8; ++i)
      co_await scope.spawn(read_that_is_destroyed(in, slots.take(), ByteOffset{i * 64_KiB}));
  }
  co_return (co_await in.fetch_add(ByteOffset{8}, 1)) ? Status{} : Status{Error{Code::kInternal}};
}

}  // namespace remora::test
