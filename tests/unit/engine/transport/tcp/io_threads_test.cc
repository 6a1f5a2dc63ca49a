#include "transport/tcp/io_threads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include <remora/metrics/registry.h>

#include "lane_fixture.h"
#include "support/pattern.h"

namespace remora::transport::tcp {
namespace {

TEST(IoThreadCount, AutomaticIsAQuarterOfTheProcessors) {
  EXPECT_EQ(IoThreads::automatic_count(0), 1U) << "not known";
  EXPECT_EQ(IoThreads::automatic_count(1), 1U);
  EXPECT_EQ(IoThreads::automatic_count(7), 1U);
  EXPECT_EQ(IoThreads::automatic_count(8), 2U);
  EXPECT_EQ(IoThreads::automatic_count(16), 4U);
  EXPECT_EQ(IoThreads::automatic_count(256), 8U);
}

class IoThreadsTest : public testing::Test {
 protected:
  static constexpr std::size_t kThreads = 4;
  static constexpr std::size_t kSessions = 8;

  /// A session of its own with a lane that a thread serves, and the client's end.
  struct Served {
    explicit Served(const IoThreads& io)
        : session{ServedSession::create(io.take_seat()).value()}, client{std::move(ends.a)} {
      const MemoryStretch stretch{memory.data(), memory.size()};
      grant =
          session->grant({.extents = {&stretch, 1}, .rights = Rights::kAll, .cpu_atomics = true})
              .value();
      const auto lane = std::make_shared<ServerLane>(std::move(ends.b), session, false);
      EXPECT_TRUE(session->add_lane(lane));
      EXPECT_TRUE(io.of(*session).add(lane));
    }
    ~Served() { session->end(); }
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;

    [[nodiscard]] std::uint32_t key() const { return grant.extents.front().remote_key; }

    std::vector<std::byte> memory = pattern(kRegionBytes, 1);
    LaneEnds ends;
    std::shared_ptr<ServedSession> session;
    Grant grant;
    ClientSide client;
  };

  void start_sessions() {
    for (std::size_t i = 0; i < kSessions; ++i) served.push_back(std::make_unique<Served>(*io));
  }

  std::shared_ptr<metrics::Registry> registry = metrics::Registry::create().value();
  std::shared_ptr<IoThreads> io = IoThreads::start(ServedMetrics::create(registry).value(),
                                                   std::chrono::microseconds{50}, kThreads)
                                      .value();
  std::vector<std::unique_ptr<Served>> served;  ///< gone before the threads
};

TEST_F(IoThreadsTest, SessionsGetTheThreadWithTheFewest) {
  ASSERT_EQ(io->size(), kThreads);
  std::vector<ThreadSeat> seats;
  std::vector<std::size_t> sessions(kThreads);
  for (std::size_t i = 0; i < 3 * kThreads; ++i) {
    seats.push_back(io->take_seat());
    ++sessions[seats.back().thread()];
  }
  EXPECT_EQ(sessions, std::vector<std::size_t>(kThreads, 3));
  const std::size_t left = seats[5].thread();
  seats[5] = {};
  EXPECT_EQ(io->take_seat().thread(), left);
  EXPECT_EQ(io->take_seat().thread(), left) << "the seat before was given back at once";
  ThreadSeat moved = std::move(seats[6]);
  EXPECT_EQ(io->take_seat().thread(), left) << "a seat that moves counts once";
}

TEST_F(IoThreadsTest, EachSessionIsServed) {
  start_sessions();
  std::vector<std::vector<std::byte>> from;
  for (std::size_t i = 0; i < kSessions; ++i) {
    from.push_back(pattern(64 * 1024, static_cast<unsigned>(i) + 2));
    served[i]->client.post({served[i]->client.write(served[i]->key(), 4096, from[i])});
  }
  for (std::size_t i = 0; i < kSessions; ++i) {
    until_told(served[i]->client, [] { std::this_thread::yield(); });
    EXPECT_TRUE(served[i]->client.all_good());
    EXPECT_TRUE(std::equal(from[i].begin(), from[i].end(), served[i]->memory.begin() + 4096));
  }
}

TEST_F(IoThreadsTest, AtomicsOfSessionsOnSeveralThreadsAreAtomic) {
  alignas(8) std::array<std::byte, 8> word{};
  const MemoryStretch stretch{word.data(), word.size()};
  start_sessions();
  std::vector<Grant> grants;
  constexpr std::size_t kRounds = 20;
  for (const auto& each : served)
    grants.push_back(
        each->session
            ->grant({.extents = {&stretch, 1}, .rights = Rights::kAll, .cpu_atomics = true})
            .value());
  std::array<std::array<std::byte, 8>, kSessions> before{};
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kSessions; ++i) {
      WorkRequest add = served[i]->client.add(grants[i].extents.front().remote_key, 0, 1);
      add.local = before[i].data();
      served[i]->client.post(std::vector<WorkRequest>(32, add));
    }
    for (const auto& each : served) until_told(each->client, [] { std::this_thread::yield(); });
  }
  std::uint64_t sum = 0;
  std::memcpy(&sum, word.data(), sizeof sum);
  EXPECT_EQ(sum, kRounds * kSessions * 32);
  grants.clear();  // before the word goes
}

/// A fence revokes the grants of all sessions, whichever threads serve them: when it returns, no
/// thread touches the memory.
TEST_F(IoThreadsTest, RevocationOfAllSessionsIsExact) {
  constexpr std::size_t kBytes = 64 * 1024;
  for (int round = 0; round < 5; ++round) {
    served.clear();
    start_sessions();
    const std::vector<std::byte> from = pattern(kBytes, 9);
    std::vector<std::vector<std::byte>> sources(kSessions, from);
    for (std::size_t i = 0; i < kSessions; ++i) {
      ClientSide& client = served[i]->client;
      std::vector<WorkRequest> chain;
      for (std::size_t at = 0; at < 60; ++at)
        chain.push_back(client.write(served[i]->key(), at * kBytes, sources[i]));
      client.post(chain);
      client.poll();
    }
    for (const auto& each : served) each->grant.handle.reset();
    std::vector<std::vector<std::byte>> then;
    for (const auto& each : served) then.push_back(each->memory);
    for (const auto& each : served) until_told(each->client, [] { std::this_thread::yield(); });
    for (std::size_t i = 0; i < kSessions; ++i)
      EXPECT_TRUE(test::same_bytes(served[i]->memory, then[i])) << "session " << i;
  }
}

TEST_F(IoThreadsTest, EndOfASessionOnOneThreadLeavesTheOthers) {
  start_sessions();
  served.front()->session->end();
  std::vector<std::byte> into(4096);
  for (std::size_t i = 1; i < kSessions; ++i) {
    served[i]->client.post({served[i]->client.read(served[i]->key(), 0, into)});
    until_told(served[i]->client, [] { std::this_thread::yield(); });
    EXPECT_TRUE(served[i]->client.all_good()) << "session " << i;
  }
}

}  // namespace
}  // namespace remora::transport::tcp
