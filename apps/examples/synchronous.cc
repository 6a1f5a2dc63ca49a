/// Synchronous, one line each: write, read, count, swap.
///
///   synchronous remora://localhost/queue

#include <array>
#include <iostream>

#include <remora/remora.h>

using remora::ByteOffset;

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: synchronous URI\n", 2;
  auto engine = remora::Engine::open({}).value();
  auto region = engine.open_region(argv[1], remora::Rights::kAll).value();

  std::array<std::byte, 4096> page{std::byte{42}};
  region.write_notify(ByteOffset{28'672}, page, 7).value();  // and tells the server's application
  std::array<std::byte, 4096> seen{};
  region.read(remora::Block{7}, seen).value();
  std::cout << (seen == page ? "read what was written" : "read something else") << '\n';

  std::uint64_t before = region.fetch_add(ByteOffset{0}, 1).value();
  std::cout << "the counter stood at " << before << '\n';

  std::uint64_t found = region.compare_swap(ByteOffset{8}, 0, before + 1).value();
  std::cout << (found == 0 ? "swapped" : "another client was first") << '\n';
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
