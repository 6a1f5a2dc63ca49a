// Wrong arguments, structs of other versions, freed handles: a documented code and one clear
// message.

#include "bad_input_test.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/remora_c.h>

#include "support/eventually.h"

namespace remora::test {
namespace {

TEST_F(BadInputTest, WrongUriSaysWhichPart) {
  expect(REMORA_INVALID_ARGUMENT, open("http://a/b"), "a URI is remora://");
  expect(REMORA_INVALID_ARGUMENT, open("remora://localhost:x/demo"), "a port is a number");
  expect(REMORA_UNSUPPORTED, open("remora://localhost/demo?transport=dove"), "dove");
  expect(REMORA_UNKNOWN_REGION, open(uri("none")), "none");
  expect(REMORA_INVALID_ARGUMENT, open(uri("demo"), 8), "rights");
  expect(REMORA_NO_RIGHT, open(uri("fixed"), REMORA_RIGHT_WRITE), "fixed");
}

TEST_F(BadInputTest, NullPointersAreNamed) {
  remora_region* opened = nullptr;
  expect(REMORA_INVALID_ARGUMENT,
         remora_engine_open_region(nullptr, "remora://a/b", 1, &opened, &error_), "remora_engine");
  expect(REMORA_INVALID_ARGUMENT, remora_engine_open_region(engine_, nullptr, 1, &opened, &error_),
         "uri");
  expect(REMORA_INVALID_ARGUMENT,
         remora_engine_open_region(engine_, "remora://a/b", 1, nullptr, &error_), "region");
  expect(REMORA_INVALID_ARGUMENT, write(nullptr), "remora_region: ");
  expect(REMORA_INVALID_ARGUMENT, remora_region_fetch_add(region_, 0, 1, nullptr, 0, &error_),
         "before");
  expect(REMORA_INVALID_ARGUMENT, remora_session_stat(session_, nullptr, nullptr, &error_), "name");
  expect(REMORA_INVALID_ARGUMENT, remora_session_stat(session_, "demo", nullptr, &error_), "info");
  expect(REMORA_INVALID_ARGUMENT, remora_session_create_region(session_, nullptr, nullptr, &error_),
         "spec");
  expect(REMORA_INVALID_ARGUMENT, remora_queue_wait(queue_, 1, nullptr, 1, nullptr, &error_),
         "completions");
  remora_server* server = nullptr;
  char no_text = 0;
  char* diagnostics = &no_text;
  expect(REMORA_INVALID_ARGUMENT, remora_server_start_file(nullptr, &server, &diagnostics, &error_),
         "path");
  EXPECT_EQ(diagnostics, nullptr);
  EXPECT_EQ(remora_queue_read(nullptr, 0, nullptr, 0, nullptr, 0), 0U);
  EXPECT_EQ(remora_region_size_bytes(nullptr), 0U);
  EXPECT_STREQ(remora_region_transport_reason(nullptr), "");
  EXPECT_EQ(remora_slots_take(nullptr), nullptr);
  EXPECT_EQ(remora_queue_depth(nullptr), 0U);
  // Without a struct for the error, and freeing nothing.
  EXPECT_EQ(remora_region_write(nullptr, 0, "x", 1, nullptr, 0, nullptr), REMORA_INVALID_ARGUMENT);
  remora_region_free(nullptr);
  remora_free(nullptr);
}

TEST_F(BadInputTest, MisalignedPointersAreRefused) {
  expect(REMORA_INVALID_ARGUMENT, write(misaligned<remora_region>()), "not aligned");
  expect(REMORA_INVALID_ARGUMENT,
         remora_region_fetch_add(region_, 0, 1, misaligned<std::uint64_t>(), 0, &error_),
         "not aligned");
  EXPECT_EQ(remora_queue_write_zeroes(misaligned<remora_queue>(), 0, 8, 0), 0U);
  EXPECT_EQ(remora_queue_depth(misaligned<remora_queue>()), 0U);
  remora_region_free(misaligned<remora_region>());
}

// It is taken, and ends as any other misuse.
TEST_F(BadInputTest, QueueOperationWithWrongMemory) {
  std::array<unsigned char, 64> bytes{};
  remora_memory* memory = nullptr;
  ASSERT_EQ(remora_engine_register_memory(engine_, bytes.data(), bytes.size(), &memory, &error_),
            REMORA_OK);
  remora_piece piece{.data = bytes.data(), .length = 8, .registered = nullptr};
  remora_memory_free(memory);
  EXPECT_NE(remora_queue_read(queue_, 0, bytes.data(), 8, memory, 0), 0U);
  EXPECT_NE(remora_queue_write(queue_, 0, bytes.data(), 8, misaligned<remora_memory>(), 1), 0U);
  EXPECT_NE(remora_queue_read(queue_, 0, nullptr, 8, nullptr, 2), 0U);
  EXPECT_NE(remora_queue_read_pieces(queue_, 0, nullptr, 1, 3), 0U);
  EXPECT_NE(remora_queue_write_pieces(queue_, 0, &piece, 0, 4), 0U);
  EXPECT_NE(remora_queue_read_pieces(queue_, 0, &piece, 1, 5), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  std::array<remora_completion, 8> found{};
  std::size_t count = 0;
  ASSERT_EQ(remora_queue_wait(queue_, 6, found.data(), found.size(), &count, &error_), REMORA_OK);
  ASSERT_EQ(count, 6U);
  for (const remora_completion& each : found)
    if (each.ticket != 0) {
      EXPECT_EQ(each.code, each.tag == 5 ? REMORA_OK : REMORA_INVALID_ARGUMENT) << each.tag;
      EXPECT_EQ(remora_queue_completion_error(queue_, &each, nullptr),
                each.tag == 5 ? REMORA_NOT_FOUND : REMORA_INVALID_ARGUMENT);
    }
}

TEST_F(BadInputTest, HandleOfAnotherKindIsRefused) {
  expect(REMORA_INVALID_ARGUMENT, write(reinterpret_cast<remora_region*>(queue_)),
         "a handle of another kind");
  remora_region_free(reinterpret_cast<remora_region*>(queue_));
  EXPECT_EQ(remora_queue_depth(queue_), 64U);
}

TEST_F(BadInputTest, FreedHandlesAreClosed) {
  remora_queue_free(queue_);
  remora_region_free(region_);
  remora_session_free(session_);
  remora_engine_free(engine_);
  expect(REMORA_CLOSED, write(region_), "this handle was freed");
  expect(REMORA_CLOSED, remora_queue_submit(queue_, &error_), "this handle was freed");
  EXPECT_EQ(remora_queue_fetch_add(queue_, 0, 1, 0), 0U);
  EXPECT_EQ(remora_queue_room(queue_), 0U);
  expect(REMORA_CLOSED, open("remora://a/b"), "this handle was freed");
  EXPECT_EQ(remora_session_connected(session_), 0);
  // TearDown() frees each of them again, which does nothing.
}

TEST_F(BadInputTest, ManyFreedHandlesKeepNoMemory) {
  for (int i = 0; i < 2000; ++i) {
    remora_region_list* list = nullptr;
    ASSERT_EQ(remora_server_regions(server_, &list, &error_), REMORA_OK);
    remora_region_list_free(list);
    EXPECT_EQ(remora_region_list_count(list), 0U);
  }
}

TEST_F(BadInputTest, StructOfAnotherSize) {
  Newer<remora_region_spec> spec;
  spec.known.size = sizeof(spec);
  spec.known.name = "newer";
  spec.known.size_bytes = 4096;
  EXPECT_EQ(remora_session_create_region(session_, &spec.known, nullptr, &error_), REMORA_OK)
      << error_.message;
  spec.tail[20] = 1;  // a field that this library does not know
  expect(REMORA_INVALID_ARGUMENT,
         remora_session_create_region(session_, &spec.known, nullptr, &error_), "spec: its size");
  spec.known.size = 0;
  expect(REMORA_INVALID_ARGUMENT,
         remora_session_create_region(session_, &spec.known, nullptr, &error_), "spec: its size");
  spec.known.size = ~std::size_t{0};
  expect(REMORA_INVALID_ARGUMENT,
         remora_session_create_region(session_, &spec.known, nullptr, &error_), "spec: its size");

  // An older program knows fewer fields: the others have their defaults.
  struct Older {
    std::size_t size;
    std::size_t depth;
  } const older{sizeof(Older), 4};
  remora_queue* queue = nullptr;
  ASSERT_EQ(remora_queue_create(region_, reinterpret_cast<const remora_queue_options*>(&older),
                                &queue, &error_),
            REMORA_OK);
  EXPECT_EQ(remora_queue_depth(queue), 4U);
  remora_queue_free(queue);
}

TEST_F(BadInputTest, StructsThatAreFilledHaveTheCallersSize) {
  Newer<remora_region_info> info;
  info.known.size = sizeof(info);
  info.tail.fill(0xee);
  EXPECT_EQ(remora_session_stat(session_, "demo", &info.known, &error_), REMORA_OK);
  EXPECT_EQ(info.known.size, sizeof(info));
  EXPECT_STREQ(info.known.name, "demo");
  EXPECT_EQ(info.tail[0], 0xee);
  info.known = {};
  info.known.size = 24;  // of an older program
  info.known.epoch = 99;
  EXPECT_EQ(remora_session_stat(session_, "demo", &info.known, &error_), REMORA_OK);
  EXPECT_EQ(info.known.size_bytes, 65536U);
  EXPECT_EQ(info.known.epoch, 99U);
  info.known.size = 0;
  expect(REMORA_INVALID_ARGUMENT, remora_session_stat(session_, "demo", &info.known, &error_),
         "info");
  // An error struct that cannot be filled changes nothing of the code.
  remora_error small{};
  small.size = 16;
  EXPECT_EQ(remora_session_stat(session_, "none", &info.known, &small), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(small.code, 0);
  EXPECT_STREQ(remora_error_message(&small), "");
  // What has a message is filled, also of programs that know fewer or more fields behind it.
  constexpr std::size_t kWithMessage =
      offsetof(remora_error, message) + sizeof(remora_error::message);
  small.size = kWithMessage - 1;
  EXPECT_EQ(remora_session_stat(session_, "none", &info.known, &small), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(small.code, 0);
  Newer<remora_error> newer;
  newer.tail.fill(0xee);
  for (const std::size_t size : {kWithMessage, sizeof(newer)}) {
    newer.known = {};
    newer.known.size = size;
    EXPECT_EQ(remora_session_stat(session_, "none", &info.known, &newer.known),
              REMORA_INVALID_ARGUMENT);
    EXPECT_EQ(newer.known.code, REMORA_INVALID_ARGUMENT);
    EXPECT_STRNE(remora_error_message(&newer.known), "");
    EXPECT_EQ(newer.tail[0], 0xee);
  }
  EXPECT_EQ(remora_session_stat(session_, "none", &info.known, misaligned<remora_error>()),
            REMORA_INVALID_ARGUMENT);
}

TEST_F(BadInputTest, EngineOptions) {
  remora_engine_options options;
  ASSERT_EQ(remora_engine_options_init(&options, sizeof(options)), REMORA_OK);
  EXPECT_EQ(remora_engine_options_init(nullptr, sizeof(options)), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(remora_engine_options_init(&options, 4), REMORA_INVALID_ARGUMENT);
  const auto with = [&](auto change) {
    remora_engine_options changed = options;
    change(changed);
    return open_engine(changed);
  };
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.lanes = 9; }), "lanes");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.huge_pages = 2; }), "huge_pages");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.placement = "moon"; }), "moon");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.populate = 3; }), "populate");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.rails = "0"; }), "rails: 0");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.rdma = "mtu=1024,speed=1"; }), "speed=1");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.rdma = "mtu=7"; }), "mtu=7");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.rdma = "mtu"; }), "rdma: mtu");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.key_hex = "12"; }), "64");
  expect(REMORA_NOT_FOUND, with([](auto& o) { o.key_file = "/nowhere/key"; }), "/nowhere/key");
  expect(REMORA_INVALID_ARGUMENT, with([](auto& o) { o.key_file = o.key_hex = "a"; }), "key_hex");
}

TEST_F(BadInputTest, EngineOptionsThatAreSetAndThoseOfAnOlderProgram) {
  remora_engine_options options;
  ASSERT_EQ(remora_engine_options_init(&options, sizeof(options)), REMORA_OK);
  options.populate = REMORA_POPULATE_NOW;
  options.rails = "auto";
  options.rdma = "traffic_class=106,mtu=1024,pkey=0xffff";
  remora_engine* opened = nullptr;
  EXPECT_EQ(remora_engine_open(&options, &opened, &error_), REMORA_OK) << error_.message;
  remora_engine_free(opened);
  options.size = offsetof(remora_engine_options, rails);
  options.rails = "moon";  // behind the struct's end
  EXPECT_EQ(remora_engine_open(&options, &opened, &error_), REMORA_OK) << error_.message;
  remora_engine_free(opened);
}

TEST_F(BadInputTest, WrongArgumentsOfGroupsTakeNothing) {
  std::array<unsigned char, 64> bytes{};
  std::array<remora_pair, 2> pairs{};
  std::array<remora_pair_outcome, 2> each{{{77, 0}, {77, 0}}};
  for (remora_pair& pair : pairs)
    ASSERT_EQ(remora_piece_init(&pair.piece, bytes.data(), bytes.size(), nullptr), REMORA_OK);
  const auto read = [&](remora_queue* queue, const remora_pair* from, std::size_t count,
                        remora_pair_outcome* outcomes) {
    return remora_queue_read_many(queue, from, count, outcomes, 0);
  };
  EXPECT_EQ(read(nullptr, pairs.data(), 2, nullptr), 0U);
  EXPECT_EQ(read(misaligned<remora_queue>(), pairs.data(), 2, nullptr), 0U);
  EXPECT_EQ(read(queue_, nullptr, 2, nullptr), 0U);
  EXPECT_EQ(read(queue_, misaligned<remora_pair>(), 2, nullptr), 0U);
  EXPECT_EQ(read(queue_, pairs.data(), 2, misaligned<remora_pair_outcome>()), 0U);
  EXPECT_EQ(read(queue_, pairs.data(), 0, each.data()), 0U);
  EXPECT_EQ(read(queue_, pairs.data(), 65, each.data()), 0U) << "there is not room for all";
  EXPECT_EQ(each[0].code, 77) << "it was written";
  EXPECT_EQ(remora_queue_room(queue_), 64U);

  // A group that waits when its grant is revoked.
  EXPECT_NE(read(queue_, pairs.data(), 2, each.data()), 0U);
  remora_session_remove_region(session_, "demo", REMORA_REMOVE_NOW, &error_);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  remora_completion found{};
  std::size_t count = 0;
  ASSERT_EQ(remora_queue_wait(queue_, 1, &found, 1, &count, &error_), REMORA_OK);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(found.code, REMORA_ACCESS_REFUSED);
  for (const remora_pair_outcome& outcome : each) {
    EXPECT_EQ(outcome.code, REMORA_ACCESS_REFUSED);
    EXPECT_EQ(outcome.reason, REMORA_REASON_REVOKED);
  }
}

TEST_F(BadInputTest, WrongArgumentsOfCallsWithManyPairs) {
  std::array<unsigned char, 64> bytes{};
  std::array<remora_pair, 2> pairs{};
  std::array<remora_pair_outcome, 2> each{};
  for (remora_pair& pair : pairs)
    ASSERT_EQ(remora_piece_init(&pair.piece, bytes.data(), bytes.size(), nullptr), REMORA_OK);
  const auto read = [&](const remora_region* region, const remora_pair* from, std::size_t count,
                        remora_pair_outcome* outcomes) {
    return remora_region_read_many(region, from, count, outcomes, 0, &error_);
  };
  EXPECT_EQ(read(region_, pairs.data(), 2, each.data()), REMORA_OK) << error_.message;
  EXPECT_EQ(read(region_, nullptr, 0, each.data()), REMORA_OK);
  expect(REMORA_INVALID_ARGUMENT, read(nullptr, pairs.data(), 2, nullptr), "remora_region");
  expect(REMORA_INVALID_ARGUMENT, read(region_, nullptr, 1, nullptr), "pairs");
  expect(REMORA_INVALID_ARGUMENT, read(region_, misaligned<remora_pair>(), 1, nullptr), "aligned");
  expect(REMORA_INVALID_ARGUMENT, read(region_, pairs.data(), 2, misaligned<remora_pair_outcome>()),
         "aligned");
  // A count that no array has: it is not touched.
  expect(REMORA_LIMIT_EXCEEDED, read(region_, pairs.data(), SIZE_MAX, each.data()), "65536");
  remora_add_pair add{4, 1, 0};
  expect(REMORA_MISALIGNED, remora_region_fetch_add_many(region_, &add, 1, each.data(), 0, &error_),
         "pair 0");
  EXPECT_EQ(each[0].code, REMORA_MISALIGNED);
  remora_session_remove_region(session_, "demo", REMORA_REMOVE_NOW, &error_);
  expect(REMORA_ACCESS_REFUSED, read(region_, pairs.data(), 2, each.data()), "revoked");
  EXPECT_EQ(each[1].code, REMORA_ACCESS_REFUSED);
  EXPECT_EQ(each[1].reason, REMORA_REASON_REVOKED);
}

/// What has come to callbacks that throw.
struct Throwing {
  std::atomic<int> lines{0};
  std::atomic<int> logged{0};  ///< lines that say that a callback threw
  std::atomic<int> events{0};
  std::atomic<int> notices{0};
};

// No exception of a callback ends the process, the session or the thread that makes the calls.
TEST_F(BadInputTest, ExceptionsOfCallbacksAreCaughtAndLogged) {
  Throwing seen;
  ASSERT_EQ(remora_set_log_line_handler(
                [](void* context, const remora_log_line* line) {
                  auto& all = *static_cast<Throwing*>(context);
                  if (std::strcmp(line->event, "callback.threw") == 0) ++all.logged;
                  if (++all.lines == 1) throw std::runtime_error{"the handler of the log"};
                },
                &seen, REMORA_LOG_INFO, &error_),
            REMORA_OK);
  ASSERT_EQ(remora_server_on_notice(
                server_, "demo",
                [](void* context, const remora_notice* /*notice*/) {
                  ++static_cast<Throwing*>(context)->notices;
                  throw 7;
                },
                &seen, &error_),
            REMORA_OK);
  remora_engine_options options;
  ASSERT_EQ(remora_engine_options_init(&options, sizeof(options)), REMORA_OK);
  options.session_context = &seen;
  options.on_session = [](void* context, const remora_session_event* /*event*/) {
    ++static_cast<Throwing*>(context)->events;
    throw std::runtime_error{"the handler of sessions"};
  };
  remora_engine* engine = nullptr;
  remora_session* session = nullptr;
  ASSERT_EQ(remora_engine_open(&options, &engine, &error_), REMORA_OK);
  ASSERT_EQ(remora_engine_connect(engine, uri("").c_str(), &session, &error_), REMORA_OK);
  for (int round = 1; round <= 2; ++round) {
    EXPECT_EQ(remora_region_write_notify(region_, 0, "x", 1, nullptr, 1, 0, &error_), REMORA_OK);
    EXPECT_EQ(remora_session_drain(session, nullptr, &error_), REMORA_OK);
    EXPECT_EQ(remora_session_end_drain(session, nullptr, &error_), REMORA_OK);
    EXPECT_TRUE(eventually([&] { return seen.events == round && seen.notices == round; }));
  }
  EXPECT_TRUE(eventually([&] { return seen.logged == 4; })) << seen.logged;
  EXPECT_GT(seen.lines, 4) << "the log goes on after its handler has thrown";
  EXPECT_EQ(remora_session_connected(session), 1);
  EXPECT_EQ(write(region_), REMORA_OK);
  ASSERT_EQ(remora_set_log_line_handler(nullptr, nullptr, REMORA_LOG_WARNING, &error_), REMORA_OK);
  ASSERT_EQ(remora_server_on_notice(server_, "demo", nullptr, nullptr, &error_), REMORA_OK);
  remora_session_free(session);
  remora_engine_free(engine);
}

TEST_F(BadInputTest, RegionRemovedUnderWay) {
  unsigned char byte = 0;
  remora_session_remove_region(session_, "demo", REMORA_REMOVE_NOW, &error_);
  expect(REMORA_ACCESS_REFUSED, remora_region_read(region_, 0, &byte, 1, nullptr, 0, &error_),
         "revoked");
  remora_region* again = nullptr;
  expect(REMORA_UNKNOWN_REGION, remora_region_reopen(region_, &again, nullptr, &error_), "demo");
  expect(REMORA_INVALID_ARGUMENT, remora_session_remove_region(session_, "fixed", 3, &error_),
         "removal");
}

/// Each completion goes to one of them; the call that comes during the other one is refused.
TEST_F(BadInputTest, TwoThreadsThatCollectGetEachCompletionOnce) {
  constexpr std::uint64_t kOperations = 64;
  for (std::uint64_t tag = 0; tag < kOperations; ++tag)
    ASSERT_NE(remora_queue_fetch_add(queue_, 0, 1, tag), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  std::array<std::atomic<int>, kOperations> seen{};
  std::atomic<std::uint64_t> taken{0};
  const auto collect = [&] {
    while (taken < kOperations) {
      std::array<remora_completion, 3> found{};
      std::size_t count = 0;
      const int code = remora_queue_poll(queue_, found.data(), found.size(), &count, nullptr);
      EXPECT_TRUE(code == REMORA_OK || (code == REMORA_BUSY && count == 0)) << code;
      for (std::size_t i = 0; i < count; ++i) ++seen.at(found.at(i).tag);
      taken += count;
    }
  };
  std::thread other{collect};
  collect();
  other.join();
  for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
}

TEST_F(BadInputTest, ChildOfForkHasNoneOfTheHandles) {
  // As a rule both have ended before the wait, which has room for one: the other one is kept for
  // the next call, which has to be the parent's.
  std::array<remora_completion, 1> found{};
  std::size_t count = 0;
  ASSERT_NE(remora_queue_fetch_add(queue_, 0, 1, 1), 0U);
  ASSERT_NE(remora_queue_fetch_add(queue_, 0, 1, 2), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  ASSERT_EQ(write(region_), REMORA_OK);
  ASSERT_EQ(remora_queue_wait(queue_, 1, found.data(), 1, &count, &error_), REMORA_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char byte = 0;
    const bool good =
        remora_region_read(region_, 0, &byte, 1, nullptr, 0, &error_) == REMORA_CLOSED &&
        error_.reason == REMORA_REASON_FORKED &&
        remora_queue_read(queue_, 0, &byte, 1, nullptr, 0) == 0 &&
        remora_queue_submit(queue_, &error_) == REMORA_CLOSED &&
        remora_queue_wait(queue_, 1, found.data(), 1, &count, &error_) == REMORA_CLOSED &&
        error_.reason == REMORA_REASON_FORKED && count == 0;
    remora_queue_free(queue_);
    remora_region_free(region_);
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(write(region_), REMORA_OK);
  ASSERT_EQ(remora_queue_wait(queue_, 1, found.data(), 1, &count, &error_), REMORA_OK);
  EXPECT_EQ(count, 1U);
}

}  // namespace
}  // namespace remora::test
