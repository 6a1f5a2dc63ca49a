// Hits in a loop, to be counted by callgrind: mr_cache_cost RANGES ROUNDS. Explicit invalidation:
// the question to the kernel is not ours to count.

#include <cstdlib>
#include <memory>

#include "support/counted.h"
#include "support/plain_verbs.h"

int main(int argc, char** argv) {
  using namespace remora;  // NOLINT(google-build-using-namespace): a program of one page
  if (argc != 3) return 2;
  const auto ranges = std::strtoul(argv[1], nullptr, 10);
  const auto rounds = std::strtoul(argv[2], nullptr, 10);
  constexpr std::size_t kRangeBytes = 4096;
  auto cache = verbs::MrCache::create(
                   test::plain_domain(),
                   {.registrations_max = 1'000'000, .invalidation = verbs::Invalidation::kExplicit})
                   .value();
  const auto memory = std::make_unique_for_overwrite<std::byte[]>((ranges + 1) * kRangeBytes);
  auto* const first =
      memory.get() + kRangeBytes - reinterpret_cast<std::uintptr_t>(memory.get()) % kRangeBytes;
  const auto acquire = [&](std::size_t range) {
    return cache.acquire({first + range * kRangeBytes, kRangeBytes}, verbs::Access::kLocalWrite)
        .value()
        .piece(0)
        .lkey;
  };
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < ranges; ++i) sum += acquire(i);
  const test::Counted counted;
  for (std::size_t i = 0; i < rounds; ++i) sum += acquire(i * 7919 % ranges);
  return sum == 1 ? 1 : 0;
}
