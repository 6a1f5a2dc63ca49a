/// Unusual buffers that the engine accepts, and buffers that it refuses, as engine/buffer.h says:
/// on each transport.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <future>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

/// Whole pages whose protection a test can change. The page after them is never accessible.
class Pages {
 public:
  explicit Pages(std::size_t length_bytes) : length_{length_bytes} {
    void* const at = ::mmap(nullptr, length_ + page(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(at);
    EXPECT_EQ(::mprotect(bytes_ + length_, page(), PROT_NONE), 0);
  }
  ~Pages() { ::munmap(bytes_, length_ + page()); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void allow(int protection) const { EXPECT_EQ(::mprotect(bytes_, length_, protection), 0); }
  [[nodiscard]] std::span<std::byte> bytes() const { return {bytes_, length_}; }

 private:
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  std::size_t length_;
  std::byte* bytes_ = nullptr;
};

bool all_of(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}
bool all_of_either(std::span<const std::byte> bytes, std::byte one, std::byte other) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [one, other](std::byte b) { return b == one || b == other; });
}

class MisuseTest : public ConformanceTest {
 protected:
  /// Writes 64 KiB of `value` at `at`.
  static void write_all_of(const Region& region, std::uint64_t at, std::byte value) {
    const std::vector<std::byte> bytes(64_KiB, value);
    ASSERT_TRUE(ok(region.write(ByteOffset{at}, bytes)));
  }

  /// The result of the one operation that `take` gives to a queue of its own.
  template <typename Take>
  static Status queued(const Region& region, Take take) {
    Queue queue = region.queue({.depth = 1}).value();
    EXPECT_TRUE(take(queue));
    queue.submit().value();
    const Completions found = queue.wait(1);
    EXPECT_EQ(found.size(), 1U);
    if (found.empty() || found.begin()->ok()) return {};
    return found.begin()->error();
  }
};

// --- Buffers that the engine accepts
// ------------------------------------------------------------------------------

TEST_P(MisuseTest, AnyAddressAndLengthUpToTheLastMappedByte) {
  const Region region = make_region();
  const Pages from{128_KiB};
  const Pages into{128_KiB};
  const RegisteredMemory known_from = engine().register_memory(from.bytes()).value();
  const RegisteredMemory known_into = engine().register_memory(into.bytes()).value();
  for (const std::size_t length : {1UL, 2UL, 3UL, 7UL, 9UL, 63UL, 221UL, 1023UL, 1024UL, 1025UL,
                                   4095UL, 4097UL, 65535UL, 65537UL, 131071UL}) {
    SCOPED_TRACE(length);
    const std::size_t at = 128_KiB - length;  // the buffer ends with the last accessible byte
    const ByteOffset offset{length % 31};
    fill(from.bytes(), length);
    ASSERT_TRUE(ok(region.write(offset, from.bytes().last(length))));
    ASSERT_TRUE(ok(region.read(offset, into.bytes().last(length))));
    EXPECT_TRUE(same_bytes(into.bytes().last(length), from.bytes().last(length)));
    fill(from.bytes(), length + 1);
    ASSERT_TRUE(ok(region.write(offset, Source{known_from, at, length})));
    ASSERT_TRUE(ok(region.read(offset, Target{known_into, at, length})));
    EXPECT_TRUE(same_bytes(into.bytes().last(length), from.bytes().last(length)));
  }
}

TEST_P(MisuseTest, OverlappingSourcesAreEachWrittenWhole) {
  constexpr std::size_t kCount = 8;
  constexpr std::size_t kLength = 20'001;
  const Region region = make_region();
  const std::vector<std::byte> bytes = noise(kLength + kCount * 1000, 70);
  Queue queue = region.queue({.depth = kCount}).value();
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(queue.write(ByteOffset{i * kLength},
                            std::span<const std::byte>{bytes}.subspan(i * 1000, kLength), i));
  EXPECT_EQ(drain(queue).size(), kCount);
  const std::vector<std::byte> all = read_all(region);
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_TRUE(same_bytes(std::span{all}.subspan(i * kLength, kLength),
                           std::span{bytes}.subspan(i * 1000, kLength)));
}

TEST_P(MisuseTest, OverlappingTargetsHoldBytesOfOneOrTheOther) {
  constexpr std::byte kOne{0x11};
  constexpr std::byte kOther{0x22};
  constexpr std::byte kMargin{0xa5};
  const Region region = make_region();
  write_all_of(region, 0, kOne);
  write_all_of(region, 64_KiB, kOther);
  std::vector<std::byte> bytes(64 + 96_KiB + 64, kMargin);
  const std::span<std::byte> target = std::span{bytes}.subspan(64, 96_KiB);
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.read(ByteOffset{0}, target.first(64_KiB)));
  ASSERT_TRUE(queue.read(ByteOffset{64_KiB}, target.last(64_KiB)));
  EXPECT_EQ(drain(queue).size(), 2U);
  EXPECT_TRUE(all_of(target.first(32_KiB), kOne));
  EXPECT_TRUE(all_of_either(target.subspan(32_KiB, 32_KiB), kOne, kOther));
  EXPECT_TRUE(all_of(target.last(32_KiB), kOther));
  EXPECT_TRUE(all_of(std::span{bytes}.first(64), kMargin));
  EXPECT_TRUE(all_of(std::span{bytes}.last(64), kMargin));
}

TEST_P(MisuseTest, SourceThatIsReadIntoIsWrittenBeforeOrAfterOrInParts) {
  constexpr std::byte kOld{0x33};
  constexpr std::byte kNew{0x44};
  const Region region = make_region();
  write_all_of(region, 64_KiB, kNew);
  std::vector<std::byte> bytes(64_KiB, kOld);
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.write(ByteOffset{0}, std::span<const std::byte>{bytes}));
  ASSERT_TRUE(queue.read(ByteOffset{64_KiB}, bytes));
  EXPECT_EQ(drain(queue).size(), 2U);
  EXPECT_TRUE(all_of(bytes, kNew));
  const std::vector<std::byte> all = read_all(region);
  EXPECT_TRUE(all_of_either(std::span{all}.first(64_KiB), kOld, kNew));
  EXPECT_TRUE(all_of(std::span{all}.subspan(64_KiB, 64_KiB), kNew));
}

TEST_P(MisuseTest, MoreForeignMemoryThanThereAreSlotsToCopyItThrough) {
  constexpr std::size_t kCount = 48;
  constexpr std::size_t kLength = 70'001;
  const Region region = make_region({.size_bytes = 4_MiB});
  const std::vector<std::byte> from = noise(kCount * kLength, 71);
  std::vector<std::byte> into(from.size());
  Queue queue = region.queue({.depth = kCount, .deadline = 30s}).value();
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(queue.write(ByteOffset{i * kLength},
                            std::span<const std::byte>{from}.subspan(i * kLength, kLength)));
  EXPECT_EQ(drain(queue).size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(queue.read(ByteOffset{i * kLength}, std::span{into}.subspan(i * kLength, kLength)));
  EXPECT_EQ(drain(queue).size(), kCount);
  EXPECT_TRUE(same_bytes(into, from));
}

TEST_P(MisuseTest, QueueMayEndInAnotherThreadThanItBeganIn) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(4, 4096).value();
  Queue mine = region.queue({.depth = 8}).value();
  for (std::uint64_t round = 1; round <= 16; ++round) {
    Queue given = region.queue({.depth = 8}).value();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(given.read(Block{0}, slots.take()));
    ASSERT_TRUE(given.fetch_add(ByteOffset{0}, 1));
    ASSERT_TRUE(ok(given.submit()));
    ASSERT_TRUE(given.fetch_add(ByteOffset{8}, 1)) << "taken, never submitted";
    ASSERT_TRUE(mine.fetch_add(ByteOffset{16}, 1));
    std::thread other{[queue = std::move(given)]() mutable { const Queue ends{std::move(queue)}; }};
    EXPECT_EQ(drain(mine).size(), 1U);
    other.join();
    std::array<Slot, 4> back;
    for (Slot& slot : back) EXPECT_TRUE(slot = slots.take()) << "a slot did not come back";
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), round);
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 0U);
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), 16U);
}

// --- Operations that the engine refuses
// ------------------------------------------------------------------------------

TEST_P(MisuseTest, OperationBeyondTheDepthTouchesNothing) {
  const Region region = make_region();
  write_all_of(region, 0, std::byte{0x5a});
  const std::vector<std::byte> before = read_all(region);
  Queue queue = region.queue({.depth = 1}).value();
  std::vector<std::byte> first(64);
  std::vector<std::byte> second(64, std::byte{0xa5});
  ASSERT_TRUE(queue.read(ByteOffset{0}, first));
  EXPECT_FALSE(queue.read(ByteOffset{0}, second));
  EXPECT_FALSE(queue.write(ByteOffset{0}, second));
  EXPECT_EQ(drain(queue).size(), 1U);
  EXPECT_TRUE(all_of(second, std::byte{0xa5}));
  EXPECT_TRUE(same_bytes(read_all(region), before));
}

TEST_P(MisuseTest, LengthsThatDoNotFitInto32BitsAreNotCutToThem) {
  const Region region = make_region();
  const Pages pages{(std::size_t{4} << 30U) + 64_KiB};
  pages.allow(PROT_NONE);  // an engine that touches a byte of it gets SIGSEGV
  const RegisteredMemory known = engine().register_memory(pages.bytes().first(4096)).value();
  for (const std::size_t length : {std::size_t{4} << 30U, (std::size_t{4} << 30U) + 1,
                                   (std::size_t{4} << 30U) + 4096, SIZE_MAX / 2, SIZE_MAX}) {
    SCOPED_TRACE(length);
    const std::span<std::byte> bytes{pages.bytes().data(), length};
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{4096}, UINT64_MAX}) {
      const ByteOffset offset{at};
      EXPECT_TRUE(fails_with(region.read(offset, bytes), Code::kOutOfRange));
      EXPECT_TRUE(fails_with(region.write(offset, bytes), Code::kOutOfRange));
      const auto read = queued(region, [&](Queue& q) { return q.read(offset, bytes); });
      EXPECT_TRUE(fails_with(read, Code::kOutOfRange));
      const auto part = queued(region, [&](Queue& q) {
        return q.write(offset, Source{known, 0, length});
      });
      EXPECT_TRUE(fails_with(part, Code::kOutOfRange));
    }
  }
  EXPECT_TRUE(region.connected());
}

TEST_P(MisuseTest, NullWithALengthIsInvalid) {
  const Region region = make_region();
  const std::span<std::byte> nowhere{static_cast<std::byte*>(nullptr), 64};
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, nowhere), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, nowhere), Code::kInvalidArgument));
  const auto read = queued(region, [&](Queue& q) { return q.read(ByteOffset{0}, nowhere); });
  EXPECT_TRUE(fails_with(read, Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(engine().register_memory(nowhere), Code::kInvalidArgument));
}

Engine open_engine_of_one_connection() {
  EngineOptions options = patient_options();
  options.reconnect_for = 0s;
  return Engine::open(options).value();
}

// --- Memory that the program may not access
// ------------------------------------------------------------------------------
// Where the engine itself copies such memory, the program gets SIGSEGV, as with memcpy: not tested.

TEST_P(MisuseTest, MemoryThatCannotBeRegisteredFailsItsOperationAlone) {
  if (!over_rdma()) GTEST_SKIP() << "only a device registers";
  const Region region = make_region();
  for (const int protection : {PROT_READ, PROT_NONE}) {
    const Pages pages{8192};
    pages.allow(protection);
    const RegisteredMemory memory = engine().register_memory(pages.bytes()).value();
    EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, Target{memory, 0, 64}), Code::kProvider));
    EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, Source{memory, 1, 64}), Code::kProvider));
    const auto read = queued(region, [&](Queue& q) {
      return q.read(ByteOffset{0}, Target{memory, 0, 8192});
    });
    EXPECT_TRUE(fails_with(read, Code::kProvider));
    EXPECT_TRUE(region.connected());
    pages.allow(PROT_READ | PROT_WRITE);
    EXPECT_TRUE(ok(region.read(ByteOffset{0}, Target{memory, 0, 64}))) << "it is tried again";
  }
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

TEST_P(MisuseTest, ReadIntoMemoryThatMayNotBeWrittenSaysWhichOneItWas) {
  if (!over_tcp()) GTEST_SKIP() << "over tcp the kernel looks, and tells";
  const RegionInfo made = create({.size_bytes = 1_MiB});
  for (const int protection : {PROT_READ, PROT_NONE})
    for (const std::size_t length : {1024UL, 4096UL, 1_MiB}) {
      SCOPED_TRACE(length);
      const Engine other = open_engine_of_one_connection();  // its session ends
      const Region region = other.open_region(uri(made.name), Rights::kAll).value();
      const Pages pages{std::max<std::size_t>(length, 4096)};
      pages.allow(protection);
      std::vector<std::byte> before(2000);
      std::vector<std::byte> after(2000);
      Queue queue = region.queue({.depth = 3}).value();
      ASSERT_TRUE(queue.read(ByteOffset{0}, before, 0));
      ASSERT_TRUE(queue.read(ByteOffset{0}, pages.bytes().first(length), 1));
      ASSERT_TRUE(queue.read(ByteOffset{0}, after, 2));
      ASSERT_TRUE(ok(queue.submit()));
      std::array<std::optional<Error>, 3> ends;
      std::size_t good = 0;
      while (queue.size() != 0)
        for (const Completion& completion : queue.wait(1)) {
          good += completion.ok() ? 1U : 0U;
          if (!completion.ok()) ends.at(completion.tag()) = completion.error();
        }
      EXPECT_EQ(good, 1U) << "the one before it";
      ASSERT_TRUE(ends[1] && ends[2]);
      EXPECT_EQ(ends[1]->code(), Code::kProvider);
      EXPECT_EQ(ends[1]->completion_status(), CompletionStatus::kLocalProtectionError);
      EXPECT_EQ(ends[2]->code(), Code::kConnectionLost);
      EXPECT_FALSE(region.connected());
    }
}

TEST_P(MisuseTest, WriteFromMemoryThatMayNotBeReadIsIndeterminate) {
  if (!over_tcp()) GTEST_SKIP() << "over tcp the kernel looks, and tells";
  const RegionInfo made = create();
  for (const std::size_t length : {1024UL, 4096UL, 64_KiB}) {
    SCOPED_TRACE(length);
    const Engine other = open_engine_of_one_connection();  // its session ends
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    const Pages pages{64_KiB};
    pages.allow(PROT_NONE);
    EXPECT_TRUE(
        fails_with(region.write(ByteOffset{0}, pages.bytes().first(length)), Code::kIndeterminate));
    EXPECT_FALSE(region.connected());
  }
  EXPECT_EQ(read_all(open(made.name)), std::vector<std::byte>(made.size_bytes));
}

REMORA_CONFORMANCE(MisuseTest);

// --- A queue in two threads at once
// ------------------------------------------------------------------------------

/// A handler of notifications that blocks holds up the client that sends them. So the owner of a
/// queue is inside of a call for as long as the test wants, on every transport.
class TwoThreadsTest : public ConformanceTest {
 protected:
  /// More notifications than a client may have unhandled, and than any transport queues for it.
  static constexpr std::uint32_t kCount = 3000;
  [[nodiscard]] bool needs_own_server() const override { return true; }

  static bool is_misuse(const Status& status) {
    return fails_with(status, Code::kBusy) &&
           status.error().subject() == "another thread is in a call of this queue";
  }
  /// Waits until the owner is inside of a call, at most 20 s. The owner has to repeat a call that
  /// the queue refuses because of the calls here.
  [[nodiscard]] static bool owner_is_in(Queue& queue) {
    for (int i = 0; i < 2000; ++i) {
      if (queue.cancel(Ticket{}).error().code() == Code::kBusy) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
};

TEST_P(TwoThreadsTest, CallsDuringTheOwnersAreRefusedAndItLosesNothing) {
  const Region region = make_region();
  std::promise<void> open;
  std::atomic<std::uint32_t> handled{0};
  ASSERT_TRUE(ok(server().on_notify(
      region.info().name, [&, gate = open.get_future().share()](const Notification& told) {
        gate.wait();
        EXPECT_EQ(told.tag, handled);
        ++handled;
      })));
  Queue queue = region.queue({.depth = kCount, .deadline = 60s}).value();
  const std::vector<std::byte> page = noise(64, 90);
  std::vector<Ticket> tickets;
  for (std::uint32_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(tickets.emplace_back(queue.write_notify(ByteOffset{64}, page, i, i)));

  std::vector<bool> ended(kCount);
  std::atomic<bool> in_last_call{over_shm()};
  std::thread owner{[&] {
    // Over shm submit() waits for the server; over the other transports wait() does.
    while (!queue.submit()) {
    }
    in_last_call = true;
    for (std::size_t left = kCount; left != 0;) {
      const Completions found = queue.wait(left);
      EXPECT_TRUE(found.status().ok() || found.empty());
      for (const Completion& completion : found) {
        EXPECT_TRUE(completion.ok()) << completion.error();
        EXPECT_FALSE(ended.at(completion.tag()));
        ended.at(completion.tag()) = true;
        --left;
      }
    }
  }};
  while (!in_last_call) std::this_thread::yield();
  EXPECT_TRUE(owner_is_in(queue));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_misuse(queue.submit()));
    EXPECT_TRUE(is_misuse(queue.cancel(tickets.back())));
    for (const auto call : {&Queue::progress, &Queue::poll}) {
      const Completions found = (queue.*call)();
      EXPECT_TRUE(is_misuse(found.status()));
      EXPECT_TRUE(found.empty());
    }
    const Completions waited = queue.wait(1);
    EXPECT_TRUE(is_misuse(waited.status()));
    EXPECT_EQ(waited.size(), 0U);
  }
  EXPECT_NE(queue.submit().error().message().find("another thread"), std::string::npos);
  open.set_value();
  owner.join();
  EXPECT_EQ(std::count(ended.begin(), ended.end(), true), kCount);
  // Now this thread owns the queue.
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(fails_with(queue.cancel(tickets.back()), Code::kNotFound));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{8}, 1));
  EXPECT_EQ(drain(queue).size(), 1U);
  EXPECT_TRUE(ok(queue.progress().status()));
  EXPECT_TRUE(eventually([&] { return handled == kCount; }));
  EXPECT_EQ(handled, kCount);
  EXPECT_TRUE(ok(server().on_notify(region.info().name, {})));
}

TEST_P(TwoThreadsTest, CompletionsThatAreOutSurviveARefusedCall) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(4, 4096).value();
  Queue queue = region.queue({.depth = 4}).value();
  std::atomic<bool> enough{false};
  std::atomic<std::uint64_t> refused{0};
  // The other thread takes no completion: its calls are refused, or find no such operation.
  std::thread other{[&] {
    while (!enough) {
      const Status status = queue.cancel(Ticket{});
      if (status.error().code() == Code::kBusy) ++refused;
    }
  }};
  for (std::uint64_t round = 0; round < steps(2000); ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(queue.read(Block{i}, slots.take(), i));
    while (!queue.submit()) {
    }
    for (std::size_t left = 4; left != 0;) {
      Completions found = queue.wait(left);
      for (Completion& completion : found) {
        EXPECT_TRUE(completion.ok()) << completion.error();
        EXPECT_EQ(completion.slot().bytes().size(), 4096U);
      }
      left -= found.size();
    }
  }
  enough = true;
  other.join();
  std::array<Slot, 4> back;
  for (Slot& slot : back) EXPECT_TRUE(slot = slots.take());
}

REMORA_CONFORMANCE(TwoThreadsTest);

}  // namespace
}  // namespace remora::test
