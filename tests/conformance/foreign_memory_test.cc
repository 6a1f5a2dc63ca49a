/// Memory that the application has not registered. It may map other pages there between two
/// operations: each operation moves the bytes that the application sees. Over rdma the engine keeps
/// registrations of such memory.

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kForeignBytes = std::size_t{256} << 10U;

/// An anonymous mapping, at `at` if that is not null.
std::span<std::byte> map(std::byte* at = nullptr) {
  void* const mapped = ::mmap(at, kForeignBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  return {static_cast<std::byte*>(mapped), kForeignBytes};
}

/// Whether the kernel reports changes of mappings to this process: the seccomp profile of a
/// container may forbid that.
bool changes_are_told() {
  const int opened =
      static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  if (opened >= 0) ::close(opened);
  return opened >= 0;
}

class ForeignMemoryTest : public ConformanceTest {
 protected:
  /// Writes from `memory`, then reads into it the bytes that were written from other memory.
  void expect_moves(const Region& region, std::span<std::byte> memory) {
    const std::vector<std::byte> out = noise(memory.size(), ++seed_);
    std::memcpy(memory.data(), out.data(), out.size());
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, memory)));
    std::vector<std::byte> seen(memory.size());
    ASSERT_TRUE(ok(region.read(ByteOffset{0}, seen)));
    EXPECT_TRUE(seen == out) << "written from " << memory.data();
    const std::vector<std::byte> in = noise(memory.size(), ++seed_);
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, in)));
    ASSERT_TRUE(ok(region.read(ByteOffset{0}, memory)));
    EXPECT_EQ(std::memcmp(memory.data(), in.data(), in.size()), 0) << "read into " << memory.data();
  }
  /// Whether the engine keeps registrations; else it copies all such memory, and counts nothing.
  bool keeps() const { return over_rdma() && changes_are_told(); }
  double counted(const char* result) {
    const auto sum =
        engine().registry().sum("remora_client_mr_cache_acquires_total", {{"result", result}});
    return sum ? *sum : 0;
  }

 private:
  std::uint64_t seed_ = 0;
};

TEST_P(ForeignMemoryTest, RegistrationIsKeptForTheNextTime) {
  const Region region = make_region({.size_bytes = kForeignBytes});
  const auto memory = map();
  expect_moves(region, memory);
  const double misses = counted("miss");
  expect_moves(region, memory);
  expect_moves(region, memory.subspan(100, memory.size() / 2));
  if (over_rdma()) {
    const auto automatic = engine().registry().sum("remora_client_mr_cache_automatic");
    ASSERT_TRUE(automatic.ok());
    EXPECT_EQ(*automatic, changes_are_told() ? 1 : 0);
  }
  if (keeps()) {
    EXPECT_GE(misses, 1);
    // Each vector is new memory, but the allocator may return the same addresses again.
    EXPECT_GE(counted("hit"), 5);
  } else {
    EXPECT_EQ(misses + counted("hit"), 0);
  }
  ::munmap(memory.data(), memory.size());
}

TEST_P(ForeignMemoryTest, OtherMemoryAtTheSameAddressIsSeen) {
  const Region region = make_region({.size_bytes = kForeignBytes});
  auto memory = map();
  for (int i = 0; i < 10; ++i) {
    expect_moves(region, memory);
    ::munmap(memory.data(), memory.size());
    memory = map(memory.data());
  }
  expect_moves(region, memory);
  ASSERT_EQ(::madvise(memory.data() + 4096, kForeignBytes / 2, MADV_DONTNEED), 0);
  expect_moves(region, memory);
  memory = map(memory.data());  // maps new pages at the same address
  expect_moves(region, memory);
  ::munmap(memory.data(), memory.size());
}

TEST_P(ForeignMemoryTest, MemoryWhoseChangesAreNotToldIsCopied) {
  const Region region = make_region({.size_bytes = kForeignBytes});
  const int file = ::memfd_create("foreign", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kForeignBytes), 0);
  auto* const at = static_cast<std::byte*>(
      ::mmap(nullptr, kForeignBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const double refused = counted("refused");
  expect_moves(region, {at, kForeignBytes});
  // Other pages at the same address, and the kernel does not report the change to the engine.
  ASSERT_EQ(::ftruncate(file, 0), 0);
  ASSERT_EQ(::ftruncate(file, kForeignBytes), 0);
  expect_moves(region, {at, kForeignBytes});
  if (keeps()) {
    EXPECT_GE(counted("refused"), refused + 4);
  }
  ::munmap(at, kForeignBytes);
  ::close(file);
}

TEST_P(ForeignMemoryTest, QueueKeepsManyInFlight) {
  constexpr std::size_t kBlock = std::size_t{64} << 10U;
  const Region region = make_region({.size_bytes = 4 * kForeignBytes});
  const auto from = map();
  const auto into = map();
  const std::vector<std::byte> out = noise(kForeignBytes, 99);
  std::memcpy(from.data(), out.data(), out.size());
  Queue queue = region.queue({.depth = 8}).value();
  for (int round = 0; round < 5; ++round)
    for (const bool write : {true, false}) {
      for (std::size_t i = 0; i < kForeignBytes / kBlock; ++i) {
        const ByteOffset at{i * kBlock};
        ASSERT_TRUE(write ? queue.write(at, from.subspan(at.bytes, kBlock))
                          : queue.read(at, into.subspan(at.bytes, kBlock)));
      }
      ASSERT_TRUE(ok(queue.submit()));
      for (Completion& completion : queue.wait(kForeignBytes / kBlock))
        EXPECT_TRUE(completion.ok()) << completion.error();
    }
  EXPECT_EQ(std::memcmp(into.data(), out.data(), out.size()), 0);
  ::munmap(from.data(), from.size());
  ::munmap(into.data(), into.size());
}

TEST_P(ForeignMemoryTest, QueueThatGoesWithOperationsHeldBackLeavesNothingPinned) {
  const Region region = make_region({.size_bytes = kForeignBytes});
  const auto first = map();
  const auto behind = map();
  {
    Queue queue = region.queue({.depth = 4}).value();
    ASSERT_TRUE(queue.read(ByteOffset{0}, first));
    queue.barrier();
    ASSERT_TRUE(queue.read(ByteOffset{0}, behind));
    ASSERT_TRUE(ok(queue.submit()));
  }
  ::munmap(first.data(), first.size());
  ::munmap(behind.data(), behind.size());
  const auto pinned = [&] {
    const auto sum = engine().registry().sum("remora_client_mr_cache_pinned_bytes");
    return sum ? *sum : 0;
  };
  EXPECT_TRUE(eventually([&] { return pinned() == 0; }));
  EXPECT_EQ(pinned(), 0);
}

TEST_P(ForeignMemoryTest, BudgetIsKeptTo) {
  EngineOptions options;
  options.operation_deadline = options.control_deadline = std::chrono::seconds{30};
  options.mr_cache_bytes = 2 * kForeignBytes;
  const Engine small = Engine::open(options).value();
  const Region region =
      small.open_region(uri(create({.size_bytes = kForeignBytes}).name), Rights::kAll).value();
  std::vector<std::span<std::byte>> all;
  std::generate_n(std::back_inserter(all), 6, [] { return map(); });
  for (const auto memory : all) {
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, memory)));
    if (keeps()) {
      EXPECT_LE(small.registry().sum("remora_client_mr_cache_pinned_bytes").value(),
                2 * kForeignBytes);
    }
  }
  for (const auto memory : all) ::munmap(memory.data(), memory.size());
}

/// Where the device or the kernel touches the memory. Over shm the engine copies, as memcpy(3).
TEST_P(ForeignMemoryTest, ReadOnlyTargetIsAnErrorOfItsReadAlone) {
  if (transport() == TransportKind::kShm) GTEST_SKIP() << "the engine's own copy: SIGSEGV";
  const Engine client = open_engine();
  const Region region =
      client.open_region(uri(create({.size_bytes = kForeignBytes}).name), Rights::kAll).value();
  const auto memory = map();
  ASSERT_EQ(::mprotect(memory.data(), memory.size(), PROT_READ), 0);
  const auto registered = client.register_memory(memory).value();
  const Status read = over_rdma() ? region.read(ByteOffset{0}, Target{registered, 0, 4096})
                                  : region.read(ByteOffset{0}, memory);
  ASSERT_TRUE(fails_with(read, Code::kProvider));
  if (over_rdma()) {
    EXPECT_EQ(read.error().system_errno(), EFAULT) << read.error();
    EXPECT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1))) << "the session goes on";
  } else {
    EXPECT_EQ(read.error().completion_status(), CompletionStatus::kLocalProtectionError);
  }
  ::munmap(memory.data(), memory.size());
}

REMORA_CONFORMANCE(ForeignMemoryTest);

}  // namespace
}  // namespace remora::test
