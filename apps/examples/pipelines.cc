/// Coroutines without an executor: a copy whose steps go on on the engine's poller, and a checksum
/// whose computing goes on on the engine's arena, on several threads at once.
///
///   pipelines remora://localhost/from remora://localhost/to

#include <atomic>
#include <iostream>

#include <remora/remora.h>

using remora::AsyncRegion;
using remora::Block;
using remora::Resume;
using remora::Slot;
using remora::SlotPool;
using remora::Status;
using remora::Task;

/// Two hand-overs and no work: right for the poller, which must never be blocked.
Task<Status> move_one(AsyncRegion from, AsyncRegion to, Block block, Slot slot) {
  auto filled = co_await from.read(block, std::move(slot));
  if (!filled) co_return filled.error();
  auto written = co_await to.write(block, std::move(*filled));
  co_return written ? Status{} : Status{written.error()};
}

Task<Status> copy(AsyncRegion from, AsyncRegion to, std::uint64_t blocks, SlotPool slots) {
  remora::Scope scope{16};
  for (std::uint64_t i = 0; i < blocks; ++i)
    if (!co_await scope.spawn(move_one(from, to, Block{i}, slots.take()))) break;
  co_return co_await scope.join();  // the first error, if there was one
}

/// FNV-1a: every byte is looked at, so this belongs on the arena.
Task<Status> hash_one(AsyncRegion in, Block block, Slot slot, std::atomic<std::uint64_t>& sum) {
  auto filled = co_await in.read(block, std::move(slot));
  if (!filled) co_return filled.error();
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : filled->bytes())
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  sum ^= hash + block.index;  // whatever the order
  co_return Status{};
}

Task<Status> hash(AsyncRegion in, std::uint64_t blocks, SlotPool slots,
                  std::atomic<std::uint64_t>& sum) {
  remora::Scope scope{16};
  for (std::uint64_t i = 0; i < blocks; ++i)
    if (!co_await scope.spawn(hash_one(in, Block{i}, slots.take(), sum))) break;
  co_return co_await scope.join();
}

int main(int argc, char** argv) try {
  if (argc < 3) return std::cerr << "usage: pipelines FROM TO\n", 2;
  auto engine = remora::Engine::open({}).value();
  auto from = engine.open_region(argv[1], remora::Rights::kRead).value();
  auto to = engine.open_region(argv[2], remora::Rights::kReadWrite).value();
  auto slots = engine.allocate_slots(17, from.block_bytes()).value();
  const std::uint64_t blocks = from.block_count();
  {
    auto source = from.async_queue({.depth = 16}).value();  // on the poller
    auto target = to.async_queue({.depth = 16}).value();
    sync_wait(copy(source.async(), target.async(), blocks, slots)).value();
  }
  std::atomic<std::uint64_t> sums[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    auto queue = (i == 0 ? from : to).async_queue({.depth = 16}, Resume::on_arena()).value();
    sync_wait(hash(queue.async(), blocks, slots, sums[i])).value();
  }
  std::cout << blocks << " blocks copied over " << to_string(to.transport()) << ", and they are "
            << (sums[0] == sums[1] ? "the same" : "NOT the same") << '\n';
  return sums[0] == sums[1] ? 0 : 1;
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
