/// A lock that a paused holder cannot break: counts under it, without an atomic.
///
///   lock remora://localhost/cache [TIMES] [PAUSE_MS] [TTL_MS]
///
/// Run several at once. One that pauses for longer than the ttl, holding the lock, loses it: its
/// late write is refused.

#include <array>
#include <bit>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <remora/remora.h>

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::ByteOffset;

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: lock URI [TIMES] [PAUSE_MS] [TTL_MS]\n", 2;
  const int times = argc > 2 ? std::atoi(argv[2]) : 100;
  const std::chrono::milliseconds pause{argc > 3 ? std::atoi(argv[3]) : 0};
  const std::chrono::milliseconds ttl{argc > 4 ? std::atoi(argv[4]) : 500};
  auto engine = remora::Engine::open({}).value();
  auto region = engine.open_region(argv[1], remora::Rights::kAll).value();
  auto lock = remora::Lock::open(region, ByteOffset{256}, {.ttl = ttl}).value();
  for (int i = 0; i < times; ++i) {
    remora::Held held = lock.acquire(30s).value();
    std::array<std::byte, 8> bytes{};
    held.region().read(ByteOffset{264}, bytes).value();
    const auto count = std::bit_cast<std::uint64_t>(bytes) + 1;
    std::this_thread::sleep_for(pause);  // without renew(): longer than the ttl is too long
    bytes = std::bit_cast<std::array<std::byte, 8>>(count);
    const remora::Status written = held.region().write(ByteOffset{264}, bytes);
    if (!written && written.error().reason() == remora::Reason::kFenced)
      return std::cout << "I was the paused one: " << written.error() << '\n', 3;
    written.value();
    if (i + 1 == times) std::cout << "counted to " << count << ", token " << held.token() << '\n';
    held.release().value();
  }
} catch (const std::exception& error) {
  return std::cerr << error.what() << '\n', 1;
}
