// The MR cache: what the key of registered memory costs, with a handle, a slot and a hit of the
// cache, and what munmap of watched memory costs the application; with the
// name of a device, not hits, but what a miss costs against ibv_reg_mr and a long range in pieces
// against one call.
//
//   bench_mr_cache [DEVICE [MIB]]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "client/datapath/local_memory.h"
#include "client/datapath/slot_store.h"
#include "support/plain_verbs.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPageBytes = 4096;
constexpr auto kRights = verbs::Access::kLocalWrite;

std::byte* map(std::size_t bytes) {
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(mapped);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double ns_of(const std::function<void()>& what) {
  const auto begin = Clock::now();
  what();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double hit_ns(verbs::Invalidation invalidation, std::size_t ranges, std::size_t threads) {
  constexpr std::size_t kHits = 100'000;
  auto cache = verbs::MrCache::create(plain_domain(), {.bytes_max = UINT64_MAX,
                                                       .registrations_max = 1'000'000,
                                                       .invalidation = invalidation})
                   .value();
  std::byte* const memory = map(ranges * kPageBytes);
  const auto acquire = [&](std::size_t range) {
    return cache.acquire({memory + range * kPageBytes, kPageBytes}, kRights).value().piece(0).lkey;
  };
  for (std::size_t i = 0; i < ranges; ++i) acquire(i);
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> others;
    const double ns = ns_of([&] {
      for (std::size_t t = 0; t < threads; ++t)
        others.emplace_back([&, t] {
          for (std::size_t i = 0; i < kHits; ++i) acquire((i * 7919 + t * 13) % ranges);
        });
      for (auto& other : others) other.join();
    });
    rounds.push_back(ns / kHits);
  }
  ::munmap(memory, ranges * kPageBytes);
  return median(rounds);
}

/// A registration of the engine's, with a fixed key.
class FixedDomain final : public transport::MemoryDomain {
 public:
  Result<std::unique_ptr<transport::Registration>> register_bytes(std::span<std::byte>) override {
    struct Fixed final : transport::Registration {
      [[nodiscard]] std::uint32_t local_key() const noexcept override { return 77; }
    };
    return std::unique_ptr<transport::Registration>{std::make_unique<Fixed>()};
  }
};

/// The compiler has to have it.
template <typename Value>
void needed(const Value& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

void handles() {
  constexpr std::size_t kTimes = 1'000'000;
  const auto ns_each = [](const auto& what) {
    constexpr std::size_t kRounds = 9;
    std::vector<double> rounds(kRounds);
    for (double& round : rounds)
      round = ns_of([&] {
                for (std::size_t i = 0; i < kTimes; ++i) what(i);
              }) /
              kTimes;
    return median(rounds);
  };
  std::vector<std::byte> bytes(64 * kPageBytes);
  const auto region = plain_domain().register_bytes(bytes, kRights).value();
  FixedDomain domain;
  detail::LocalMemory memory{bytes};
  const auto slots = detail::SlotStore::create(64, kPageBytes).value();
  if (!memory.register_with(domain, 0) || !slots->memory()->register_with(domain, 0)) std::abort();
  const double handle =
      ns_each([&](std::size_t i) { needed(region.slice(i % 64 * kPageBytes, kPageBytes)); });
  const double registered = ns_each([&](std::size_t i) {
    const std::byte* const at = bytes.data() + i % 64 * kPageBytes;
    needed(memory.contains(at, kPageBytes) && memory.registered(0) ? memory.key(0) : 0);
  });
  const double slot = ns_each([&](std::size_t) {
    const std::uint32_t index = slots->take();
    needed(slots->memory()->key(0));
    slots->give_back(index);
  });
  std::printf(
      "the key of registered memory, ns: a slice of a handle %.1f, of the engine's %.1f, "
      "a slot taken and given back %.1f\n",
      handle, registered, slot);
}

void hits() {
  std::printf("a hit and its lease, ns (ratio to 1 range, 1 thread)\n");
  for (const auto kind : {verbs::Invalidation::kExplicit, verbs::Invalidation::kAutomatic}) {
    const double one = hit_ns(kind, 1, 1);
    for (const std::size_t ranges : {1UL, 1'000UL, 100'000UL})
      for (const std::size_t threads : {1UL, 2UL}) {
        const double ns = hit_ns(kind, ranges, threads);
        std::printf("  %-9s %6zu ranges %zu threads %7.0f  %.2f\n",
                    kind == verbs::Invalidation::kExplicit ? "explicit" : "automatic", ranges,
                    threads, ns, ns / one);
        std::fflush(stdout);
      }
  }
}

void unmapping() {
  auto cache = verbs::MrCache::create(plain_domain()).value();
  std::vector<double> plain;
  std::vector<double> watched;
  for (int i = 0; i < 500; ++i)
    for (const bool watch : {false, true}) {
      std::byte* const memory = map(16 * kPageBytes);
      memory[0] = std::byte{1};
      if (watch) static_cast<void>(cache.acquire({memory, 16 * kPageBytes}, kRights).value());
      (watch ? watched : plain).push_back(ns_of([&] { ::munmap(memory, 16 * kPageBytes); }));
    }
  std::printf("munmap of 64 KiB: %.1f us, watched %.1f us (medians of 500 pairs)\n",
              median(plain) / 1000, median(watched) / 1000);
}

void on_device(const char* name, std::size_t mib) {
  const auto domain =
      verbs::devices().value().find(name).value().open().value().allocate_domain().value();
  auto cache = verbs::MrCache::create(domain, {.bytes_max = UINT64_MAX}).value();
  std::byte* const memory = map(mib << 20U);
  for (std::size_t at = 0; at < mib << 20U; at += kPageBytes) memory[at] = std::byte{1};
  for (const std::size_t bytes : {kPageBytes, std::size_t{1} << 20U}) {
    std::vector<double> bare;
    std::vector<double> missed;
    for (int i = 0; i < 50; ++i) {
      bare.push_back(ns_of([&] {
        ibv_mr* const region =
            verbs::Provider::system().reg_mr(domain.raw(), memory, bytes, verbs::bits(kRights));
        if (region != nullptr) ::ibv_dereg_mr(region);
      }));
      missed.push_back(ns_of([&] {
        static_cast<void>(cache.acquire({memory, bytes}, kRights).value());
        cache.invalidate({memory, bytes});
      }));
    }
    std::printf(
        "miss and invalidate of %zu KiB: %.1f us, ibv_reg_mr and ibv_dereg_mr %.1f us, "
        "ratio %.2f\n",
        bytes >> 10U, median(missed) / 1000, median(bare) / 1000, median(missed) / median(bare));
  }
  std::vector<double> whole;
  std::vector<double> pieces;
  auto single = verbs::MrCache::create(domain, {.bytes_max = UINT64_MAX,
                                                .piece_bytes = std::uint64_t{1} << 40U,
                                                .invalidation = verbs::Invalidation::kExplicit})
                    .value();
  for (int i = 0; i < 5; ++i)
    for (auto* one : {&single, &cache})
      (one == &single ? whole : pieces).push_back(ns_of([&] {
        static_cast<void>(one->acquire({memory, mib << 20U}, kRights).value());
        one->invalidate({memory, mib << 20U});
      }));
  std::printf("%zu MiB: one call %.2f ms, pieces of 64 MiB %.2f ms, ratio %.2f\n", mib,
              median(whole) / 1e6, median(pieces) / 1e6, median(pieces) / median(whole));
  ::munmap(memory, mib << 20U);
}

}  // namespace
}  // namespace remora::test

int main(int argc, char** argv) {
  if (argc > 1) {
    remora::test::on_device(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 256);
  } else {
    remora::test::handles();
    remora::test::hits();
  }
  remora::test::unmapping();
}
