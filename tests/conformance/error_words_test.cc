/// Errors of operations name their server, region, offset and length, and the argument that is
/// wrong. They do so on each transport and from each interface: synchronous, queues, callbacks.

#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <optional>
#include <string>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

using ::testing::HasSubstr;

/// The operation that an error must name.
struct Wanted {
  Code code;
  Reason reason = Reason::kNone;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class ErrorWordsTest : public ConformanceTest {
 protected:
  [[nodiscard]] std::string server_name() const {
    const bool v6 = address().host.find(':') != std::string::npos;
    return (v6 ? "[" + address().host + "]" : address().host) + ":" +
           std::to_string(address().port);
  }

  void expect_words(const Region& region, const std::optional<Error>& error, const Wanted& wanted,
                    const char* face) {
    SCOPED_TRACE(face);
    ASSERT_TRUE(error.has_value()) << "no error";
    EXPECT_EQ(error->code(), wanted.code) << *error;
    EXPECT_EQ(error->reason(), wanted.reason) << *error;
    EXPECT_EQ(error->server(), server_name());
    EXPECT_EQ(error->subject(), region.info().name);
    ASSERT_TRUE(error->has_place()) << *error;
    EXPECT_EQ(error->offset_bytes(), wanted.offset) << *error;
    EXPECT_EQ(error->length_bytes(), wanted.length) << *error;
    EXPECT_THAT(error->message(), HasSubstr(": " + server_name() + "/" + region.info().name +
                                            ", offset " + std::to_string(wanted.offset) +
                                            ", length " + std::to_string(wanted.length) + ": "));
  }

  template <typename Take>
  static std::optional<Error> queued(const Region& region, Take take) {
    Queue queue = region.queue({.depth = 1}).value();
    if (!take(queue)) return std::nullopt;
    queue.submit().value();
    const Completions found = queue.wait(1);
    if (found.empty() || found.begin()->ok()) return std::nullopt;
    return found.begin()->error();
  }

  template <typename Give>
  static std::optional<Error> called_back(const Region& region, Give give) {
    CallbackQueue queue = region.callback_queue({.depth = 1}).value();
    std::promise<std::optional<Error>> told;
    const Status status = give(queue, [&told](Completion& completion) {
      told.set_value(completion.ok() ? std::nullopt : std::optional{completion.error()});
    });
    return status ? told.get_future().get() : std::optional{status.error()};
  }

  template <typename Result>
  static std::optional<Error> error_of(const Result& result) {
    return result ? std::nullopt : std::optional{result.error()};
  }

  void expect_read_words(const Region& region, std::uint64_t at, Target into,
                         const Wanted& wanted) {
    const ByteOffset from{at};
    expect_words(region, error_of(region.read(from, into)), wanted, "read");
    expect_words(region, queued(region, [&](Queue& q) { return q.read(from, into); }), wanted,
                 "queue");
    expect_words(
        region,
        called_back(region, [&](CallbackQueue& q, auto told) { return q.read(from, into, told); }),
        wanted, "callback");
    Executor executor;
    const auto work = [](AsyncRegion in, ByteOffset offset, Target bytes) -> Task<Status> {
      co_return co_await in.read(offset, bytes);
    };
    expect_words(region, error_of(executor.run(work(region.async(), from, into))), wanted,
                 "executor");
    AsyncQueue queue = region.async_queue({.depth = 1}).value();
    expect_words(region, error_of(sync_wait(work(queue.async(), from, into))), wanted,
                 "async queue");
  }
  void expect_write_words(const Region& region, std::uint64_t at, Source from,
                          const Wanted& wanted) {
    const ByteOffset to{at};
    expect_words(region, error_of(region.write(to, from)), wanted, "write");
    expect_words(region, queued(region, [&](Queue& q) { return q.write(to, from); }), wanted,
                 "queue");
    expect_words(
        region,
        called_back(region, [&](CallbackQueue& q, auto told) { return q.write(to, from, told); }),
        wanted, "callback");
  }
  void expect_atomic_words(const Region& region, std::uint64_t at, const Wanted& wanted) {
    const ByteOffset word{at};
    expect_words(region, error_of(region.fetch_add(word, 1)), wanted, "fetch_add");
    expect_words(region, error_of(region.compare_swap(word, 0, 1)), wanted, "compare_swap");
    expect_words(region, queued(region, [&](Queue& q) { return q.fetch_add(word, 1); }), wanted,
                 "queue");
    expect_words(region,
                 called_back(region, [&](CallbackQueue& q,
                                         auto told) { return q.fetch_add(word, 1, told); }),
                 wanted, "callback");
  }
};

TEST_P(ErrorWordsTest, OutOfRangeGivesOffsetLengthAndTheRegionsSize) {
  const Region region = make_region();
  const std::uint64_t end = region.size_bytes();
  std::vector<std::byte> bytes(4096);
  const Wanted wanted{.code = Code::kOutOfRange, .offset = end - 1, .length = 4096};
  expect_read_words(region, end - 1, bytes, wanted);
  expect_write_words(region, end - 1, bytes, wanted);
  expect_atomic_words(region, end, {.code = Code::kOutOfRange, .offset = end, .length = 8});
  const Error error = region.read(ByteOffset{end - 1}, bytes).error();
  EXPECT_EQ(error.asked(), end + 4095);
  EXPECT_EQ(error.allowed(), end);
  EXPECT_THAT(error.message(), HasSubstr("the region has " + std::to_string(end) + " bytes"));
  const Status zeroes = region.write_zeroes(ByteOffset{8}, end);
  expect_words(region, error_of(zeroes), {Code::kOutOfRange, Reason::kNone, 8, end}, "zeroes");
}

TEST_P(ErrorWordsTest, WrongArgumentIsNamed) {
  const Region region = make_region();
  std::vector<std::byte> bytes(64);
  const auto invalid = [](Reason reason, std::uint64_t length) {
    return Wanted{.code = Code::kInvalidArgument, .reason = reason, .offset = 16, .length = length};
  };
  const std::span<std::byte> none = std::span{bytes}.first(0);
  expect_read_words(region, 16, none, invalid(Reason::kZeroLength, 0));
  expect_write_words(region, 16, none, invalid(Reason::kZeroLength, 0));
  std::vector<std::byte> empty;
  expect_read_words(region, 16, empty, invalid(Reason::kZeroLength, 0));
  expect_words(region, error_of(region.write_zeroes(ByteOffset{16}, 0)),
               invalid(Reason::kZeroLength, 0), "zeroes");
  Slot slot;
  expect_read_words(region, 16, slot, invalid(Reason::kEmptySlot, 0));
  expect_write_words(region, 16, slot, invalid(Reason::kEmptySlot, 0));
  expect_words(region, queued(region, [&](Queue& q) { return q.read(ByteOffset{16}, Slot{}); }),
               invalid(Reason::kEmptySlot, 0), "slot of a queue");
  std::byte* const nowhere = nullptr;
  // NOLINTNEXTLINE(bugprone-string-constructor): what is tested
  expect_read_words(region, 16, std::span<std::byte>{nowhere, 8}, invalid(Reason::kNullPointer, 8));
  for (const std::uint64_t at : {1U, 4U, 4097U})
    expect_atomic_words(region, at, {.code = Code::kMisaligned, .offset = at, .length = 8});
}

TEST_P(ErrorWordsTest, PartOutsideOfRegisteredMemoryIsNoPartOutsideOfTheRegion) {
  const Region region = make_region();
  std::vector<std::byte> bytes(4096);
  const RegisteredMemory known = engine().register_memory(bytes).value();
  const Wanted wanted{.code = Code::kOutOfRange, .reason = Reason::kOutsideMemory, .offset = 8};
  expect_read_words(region, 8, Target{known, 4000, 97}, wanted);
  expect_write_words(region, 8, Source{known, 4097, 1}, wanted);
}

TEST_P(ErrorWordsTest, PiecesAreCounted) {
  const Region region = make_region();
  std::vector<std::byte> bytes(64);
  const std::vector<Target> many(kMaxPieces + 1, Target{bytes});
  const Error refused = region.read(ByteOffset{0}, many).error();
  EXPECT_EQ(refused.code(), Code::kLimitExceeded);
  EXPECT_EQ(refused.reason(), Reason::kPieces) << refused;
  EXPECT_EQ(refused.asked(), kMaxPieces + 1);
  EXPECT_EQ(refused.allowed(), kMaxPieces);
  EXPECT_EQ(region.read(ByteOffset{0}, std::span<const Target>{}).error().reason(),
            Reason::kPieces);
  Slot slot;
  const std::vector<Target> third{Target{bytes}, Target{bytes}, Target{slot}};
  const Error empty = region.read(ByteOffset{0}, third).error();
  EXPECT_EQ(empty.reason(), Reason::kEmptySlot) << empty;
  EXPECT_THAT(empty.message(), HasSubstr(region.info().name + ", piece 3"));
}

TEST_P(ErrorWordsTest, MissingRightAndForeignAtomicsAreOfTheirRegion) {
  const RegionInfo made = create({.atomic_domain = "none"});
  const Region reader = open(made.name, Rights::kRead);
  std::vector<std::byte> bytes(64);
  expect_write_words(reader, 32, bytes, {.code = Code::kNoRight, .offset = 32, .length = 64});
  const auto all = engine().open_region(uri(made.name), made.rights);
  ASSERT_TRUE(ok(all));
  expect_atomic_words(
      *all, 32,
      {.code = Code::kWrongAtomicDomain, .reason = Reason::kNoAtomics, .offset = 32, .length = 8});
}

/// One queue serves several regions, and each error names the region of its operation.
TEST_P(ErrorWordsTest, QueueOfSeveralRegionsNamesTheRightOne) {
  const Region first = make_region();
  const Region second = make_region();
  std::vector<std::byte> bytes(64);
  Queue queue = first.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.read(ByteOffset{first.size_bytes()}, bytes, 1));
  ASSERT_TRUE(ok(queue.select(second)));
  ASSERT_TRUE(queue.read(ByteOffset{second.size_bytes()}, bytes, 2));
  ASSERT_TRUE(ok(queue.submit()));
  const Completions found = queue.wait(2);
  ASSERT_EQ(found.size(), 2U);
  for (const Completion& each : found)
    EXPECT_EQ(each.error().subject(), (each.tag() == 1 ? first : second).info().name);
}

TEST_P(ErrorWordsTest, RequestsNameServerAndRegion) {
  const auto expect_named = [&](const Error& error, std::string_view name) {
    EXPECT_EQ(error.server(), server_name()) << error;
    EXPECT_EQ(error.subject(), name) << error;
    EXPECT_FALSE(error.has_place());
  };
  expect_named(engine().open_region(uri("absent"), Rights::kRead).error(), "absent");
  expect_named(session().stat("absent").error(), "absent");
  expect_named(session().remove_region("absent").error(), "absent");
  expect_named(session().resize_region("absent", 4096).error(), "absent");
}

TEST_P(ErrorWordsTest, LocksAndSealedBlocksNameTheirPlace) {
  const Region region = make_region();
  const auto expect_place = [&](const Error& error, std::uint64_t at) {
    EXPECT_EQ(error.server(), server_name()) << error;
    EXPECT_EQ(error.subject(), region.info().name) << error;
    EXPECT_TRUE(error.has_place()) << error;
    EXPECT_EQ(error.offset_bytes(), at) << error;
  };
  expect_place(Lock::open(region, ByteOffset{4}).error(), 4);
  expect_place(Lock::open(region, ByteOffset{region.size_bytes()}).error(), region.size_bytes());
  const Lock lock = Lock::open(region, ByteOffset{64}).value();
  const Held held = lock.acquire(1s).value();
  const auto second = lock.try_acquire();
  ASSERT_TRUE(fails_with(second, Code::kWouldBlock));
  expect_place(second.error(), 64);
  EXPECT_EQ(second.error().reason(), Reason::kHeld);
  std::vector<std::byte> half(2048);
  expect_place(write_consistent(region, Block{2}, half, 1).error(), 8192);
  expect_place(read_consistent(region, Block{2}, half).error(), 8192);
}

TEST_P(ErrorWordsTest, SlotsBeyondTheirLimitsSayWhich) {
  const auto subject = [&](std::size_t count, std::size_t bytes) {
    const auto refused = engine().allocate_slots(count, bytes);
    EXPECT_TRUE(fails_with(refused, Code::kInvalidArgument));
    return refused ? std::string{} : std::string{refused.error().subject()};
  };
  EXPECT_THAT(subject(0, 64), HasSubstr("count"));
  EXPECT_THAT(subject(1'048'576, 64), HasSubstr("1 to 1048575"));
  EXPECT_THAT(subject(1, 0), HasSubstr("slot_bytes"));
  EXPECT_THAT(subject(1, (std::size_t{1} << 30U) + 1), HasSubstr("slot_bytes"));
  EXPECT_TRUE(ok(engine().allocate_slots(1'048'575, 1)));
}

REMORA_CONFORMANCE(ErrorWordsTest);

}  // namespace
}  // namespace remora::test
