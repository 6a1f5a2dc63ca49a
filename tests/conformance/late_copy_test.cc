/// A fence does not return while a thread still copies into the mapped region, however long that
/// thread has had no processor.

#include <atomic>
#include <csignal>
#include <functional>
#include <sys/mman.h>
#include <thread>
#include <time.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kHeldPageBytes = 4096;
/// The page whose first read is held up, and whether it was read and may be read.
std::atomic<std::byte*> g_held_page{nullptr};
std::atomic<bool> g_read_began{false};
std::atomic<bool> g_read_allowed{false};

/// Holds the thread that reads the page until the read is allowed.
void hold_read(int /*signal*/, siginfo_t* info, void* /*context*/) {
  std::byte* const page = g_held_page.load();
  auto* const at = static_cast<std::byte*>(info->si_addr);
  if (page == nullptr || at < page || at >= page + kHeldPageBytes) {
    ::signal(SIGSEGV, SIG_DFL);
    return;
  }
  g_read_began = true;
  const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
  while (!g_read_allowed) ::nanosleep(&pause, nullptr);
  ::mprotect(page, kHeldPageBytes, PROT_READ | PROT_WRITE);
}

/// Two pages of ones. A thread that copies them stops before the second one, until release().
class HeldBytes {
 public:
  HeldBytes()
      : pages_{static_cast<std::byte*>(::mmap(nullptr, 2 * kHeldPageBytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))} {
    std::fill_n(pages_, 2 * kHeldPageBytes, std::byte{1});
    ::mprotect(pages_ + kHeldPageBytes, kHeldPageBytes, PROT_NONE);
    g_read_began = g_read_allowed = false;
    g_held_page = pages_ + kHeldPageBytes;
    struct sigaction action {};
    action.sa_sigaction = &hold_read;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~HeldBytes() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    g_held_page = nullptr;
    ::munmap(pages_, 2 * kHeldPageBytes);
  }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {pages_, 2 * kHeldPageBytes}; }
  [[nodiscard]] static bool reached() { return g_read_began; }
  static void release() { g_read_allowed = true; }

 private:
  std::byte* pages_;
  struct sigaction before_ {};
};

class LateCopyTest : public ConformanceTest {
 protected:
  using Write = std::function<void(const Region&, std::span<const std::byte>)>;

  void SetUp() override {
    if (!over_shm()) GTEST_SKIP() << "no thread of a client copies into the region";
    ConformanceTest::SetUp();
  }
  [[nodiscard]] bool needs_own_server() const override { return true; }
  /// The server does not lose patience with the thread that is held up.
  void configure(config::ServerConfig& config) const override {
    config.limits.revoke_grace = std::chrono::seconds{60};
  }

  /// Fences the region while a thread is in the middle of the copy of `write`.
  void fence_during(const Write& write) {
    const Region region = make_region();
    const Engine other_engine = open_engine();
    const Region other = other_engine.open_region(uri(region.info().name), Rights::kAll).value();
    HeldBytes ones;
    std::thread writer{[&] { write(region, ones.bytes()); }};
    EXPECT_TRUE(eventually([&] { return HeldBytes::reached(); }));
    std::optional<Region> fenced;
    std::atomic<bool> fence_returned{false};
    std::thread fencer{[&] {
      auto result = other.fence();
      EXPECT_TRUE(result.ok()) << result.error();
      if (result.ok()) fenced = std::move(*result);
      fence_returned = true;
    }};
    std::array<std::byte, 64> into{};
    EXPECT_TRUE(eventually([&] { return !region.read(ByteOffset{0}, into).ok(); }));
    // A client that does not wait for the copy has answered by now. Where the machine is too busy
    // for that, the test proves less, and does not fail.
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    EXPECT_FALSE(fence_returned) << "the fence did not wait for the copy";
    if (!fence_returned) HeldBytes::release();
    fencer.join();
    const std::vector<std::byte> twos(2 * kHeldPageBytes, std::byte{2});
    if (fenced) {
      EXPECT_TRUE(ok(fenced->write(ByteOffset{0}, twos)));
    }
    HeldBytes::release();
    writer.join();
    if (!fenced) return;
    std::vector<std::byte> now(2 * kHeldPageBytes);
    EXPECT_TRUE(ok(fenced->read(ByteOffset{0}, now)));
    EXPECT_TRUE(same_bytes(now, twos)) << "the write landed after the fence";
  }
};

TEST_P(LateCopyTest, FenceWaitsForAWrite) {
  fence_during([](const Region& region, std::span<const std::byte> bytes) {
    EXPECT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
  });
}

TEST_P(LateCopyTest, FenceWaitsForAWriteInPieces) {
  fence_during([](const Region& region, std::span<const std::byte> bytes) {
    const std::array<Source, 2> pieces{bytes.first(64), bytes.subspan(64)};
    EXPECT_TRUE(ok(region.write(ByteOffset{0}, pieces)));
  });
}

TEST_P(LateCopyTest, FenceWaitsForPairs) {
  fence_during([](const Region& region, std::span<const std::byte> bytes) {
    const std::array<WritePair, 2> pairs{
        {{ByteOffset{0}, bytes.first(64)}, {ByteOffset{64}, bytes.subspan(64)}}};
    EXPECT_TRUE(ok(region.write_many(pairs)));
  });
}

TEST_P(LateCopyTest, FenceWaitsForAQueue) {
  fence_during([](const Region& region, std::span<const std::byte> bytes) {
    Queue queue = region.queue({.depth = 2}).value();
    queue.write(ByteOffset{0}, bytes);
    EXPECT_TRUE(ok(queue.submit()));
    drain(queue);
  });
}

TEST_P(LateCopyTest, FenceWaitsForACallbackQueue) {
  fence_during([](const Region& region, std::span<const std::byte> bytes) {
    CallbackQueue queue = region.callback_queue({.depth = 2}).value();
    EXPECT_TRUE(ok(queue.write(ByteOffset{0}, bytes,
                               [](Completion& completion) { EXPECT_TRUE(completion.ok()); })));
  });
}

REMORA_CONFORMANCE(LateCopyTest);

}  // namespace
}  // namespace remora::test
