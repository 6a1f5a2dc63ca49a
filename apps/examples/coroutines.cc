/// A pipeline of coroutines: copies one region into another, 16 blocks in flight, in this thread.
///
///   coroutines remora://localhost/from remora://localhost/to

#include <iostream>

#include <remora/remora.h>

using remora::Block;
using remora::Region;
using remora::Slot;
using remora::Status;
using remora::Task;

Task<Status> move_one(Region from, Region to, Block block, Slot slot) {
  auto filled = co_await from.async().read(block, std::move(slot));
  if (!filled) co_return filled.error();
  auto written = co_await to.async().write(block, std::move(*filled));
  co_return written ? Status{} : Status{written.error()};
}

Task<Status> copy(Region from, Region to, remora::SlotPool slots) {
  remora::Scope scope{16};
  for (std::uint64_t i = 0; i < from.block_count(); ++i)
    if (!co_await scope.spawn(move_one(from, to, Block{i}, slots.take()))) break;
  co_return co_await scope.join();  // the first error, if there was one
}

int main(int argc, char** argv) try {
  if (argc < 3) return std::cerr << "usage: coroutines FROM TO\n", 2;
  auto engine = remora::Engine::open({}).value();
  auto from = engine.open_region(argv[1], remora::Rights::kRead).value();
  auto to = engine.open_region(argv[2], remora::Rights::kWrite).value();
  auto slots = engine.allocate_slots(17, from.block_bytes()).value();
  remora::Executor executor;
  executor.run(copy(from, to, slots)).value();
  std::cout << from.block_count() << " blocks copied over " << to_string(to.transport()) << '\n';
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
