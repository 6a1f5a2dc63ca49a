/// Transfers and atomics over a lane, from post() to their completion.

#include <array>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <vector>

#include "lane_fixture.h"
#include "support/timed.h"

namespace remora::transport::tcp {
namespace {

/// Every size from a byte over each threshold to the largest, each way.
const std::vector<std::uint32_t>& sizes() {
  static const std::vector<std::uint32_t> all{
      1,     7,     8,     1023,  1024,   1025,    4096,
      16383, 16384, 32768, 65536, 300001, 1048575, kMaxTransferBytes};
  return all;
}

class TcpLaneTest : public testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  [[nodiscard]] static bool crc() { return std::get<0>(GetParam()); }
  LaneEnds pair{std::get<1>(GetParam())};
  ServerSide server{std::move(pair.a), crc()};
  ClientSide client{std::move(pair.b), 64, crc()};
};

TEST_P(TcpLaneTest, ReadsOfEachSizeAreWhole) {
  std::vector<std::vector<std::byte>> into;
  std::vector<WorkRequest> chain;
  into.reserve(sizes().size());
  chain.reserve(sizes().size());
  for (const std::uint32_t size : sizes()) into.emplace_back(size);
  for (auto& buffer : into) chain.push_back(client.read(server.key(), buffer.size(), buffer));
  client.post(chain);
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  for (const auto& buffer : into)
    EXPECT_EQ(std::memcmp(buffer.data(), server.memory.data() + buffer.size(), buffer.size()), 0)
        << buffer.size();
  EXPECT_EQ(server.served.operations[0], sizes().size());
}

TEST_P(TcpLaneTest, WritesOfEachSizeAreWholeAndTouchNothingElse) {
  for (const std::uint32_t size : sizes()) {
    std::vector<std::byte> from = pattern(size, size);
    std::vector<std::byte> model = server.memory;
    std::memcpy(model.data() + 77, from.data(), size);
    client.post({client.write(server.key(), 77, from)});
    until_told(client, [&] { server.step(); });
    EXPECT_TRUE(client.all_good());
    EXPECT_TRUE(test::same_bytes(server.memory, model)) << size;
  }
}

TEST_P(TcpLaneTest, NoticeArrivesWholeBehindItsWrite) {
  std::vector<std::byte> from = pattern(100, 5);
  const Notice notice{.grant_id = 0x1122334455667788,
                      .offset_bytes = 0x0123456789abcdef,
                      .length_bytes = 0xfedcba9876543210,
                      .tag = 0xcafef00d};
  client.post({client.write(server.key(), 8, from), WorkRequest::notify(notice)});
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(std::memcmp(server.memory.data() + 8, from.data(), from.size()), 0);
  std::array<Notice, 2> found{};
  ASSERT_EQ(server.session->take_notices(found).first, 1U);
  EXPECT_EQ(found[0].grant_id, notice.grant_id);
  EXPECT_EQ(found[0].offset_bytes, notice.offset_bytes);
  EXPECT_EQ(found[0].length_bytes, notice.length_bytes);
  EXPECT_EQ(found[0].tag, notice.tag);
}

TEST_P(TcpLaneTest, ChainOfEverythingIsServedInOrder) {
  std::vector<std::vector<std::byte>> from;
  std::vector<std::vector<std::byte>> into;
  std::vector<WorkRequest> chain;
  for (unsigned i = 0; i < 12; ++i) {
    from.push_back(pattern(sizes()[i], i));
    into.emplace_back(sizes()[i]);
  }
  std::uint64_t sum = 0;
  std::memcpy(&sum, server.memory.data(), sizeof sum);
  for (unsigned i = 0; i < 12; ++i) {  // each read sees the write before it, and not the next one
    chain.push_back(client.write(server.key(), 64, from[i]));
    chain.push_back(client.read(server.key(), 64, into[i]));
    chain.push_back(client.add(server.key(), 0, i));
  }
  client.post(chain);
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(from[i], into[i]) << i;
    EXPECT_EQ(client.lane->atomic_results()[3 * i + 2], sum) << i;
    sum += i;
  }
}

TEST_P(TcpLaneTest, WritesOfOneChainAreAcknowledgedTogether) {
  std::vector<std::byte> from = pattern(64, 5);
  std::vector<WorkRequest> chain(16, client.write(server.key(), 0, from));
  for (std::size_t i = 0; i < chain.size(); ++i) chain[i].remote_address = 64 * i;
  client.post(chain);
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(server.served.operations[1], 16U);
}

TEST_P(TcpLaneTest, SmallReadsReturnWhatStoodThereBeforeTheWritesBehindThem) {
  std::vector<std::vector<std::byte>> into(20, std::vector<std::byte>(64));
  std::vector<std::vector<std::byte>> from;
  std::vector<WorkRequest> chain;
  for (unsigned i = 0; i < 20; ++i) from.push_back(pattern(40, i));
  for (unsigned i = 0; i < 20; ++i) {
    chain.push_back(client.read(server.key(), 256, into[i]));
    chain.push_back(client.write(server.key(), 256 + i, from[i]));
  }
  std::vector<std::byte> model{server.memory.begin() + 256, server.memory.begin() + 320};
  client.post(chain);
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(into[i], model) << i;
    std::copy(from[i].begin(), from[i].end(), model.begin() + i);
  }
}

TEST_P(TcpLaneTest, ChainsThatFindNoRoomInTheSocketArriveWhole) {
  // Small writes are copied behind their headers until there is no room for copies; then again.
  std::vector<std::byte> model = server.memory;
  std::vector<std::vector<std::byte>> from;
  from.reserve(3000);
  std::uint64_t at = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (from.size() < 3000 && std::chrono::steady_clock::now() < give_up) {
    const std::size_t in_flight = client.next - client.statuses.size();
    std::vector<WorkRequest> chain;
    for (std::size_t i = 0; i < std::min<std::size_t>(64 - in_flight, 1 + from.size() % 7); ++i) {
      from.push_back(pattern(1 + (from.size() * 37) % 1030, static_cast<unsigned>(from.size())));
      std::copy(from.back().begin(), from.back().end(),
                model.begin() + static_cast<std::ptrdiff_t>(at));
      chain.push_back(client.write(server.key(), at, from.back()));
      at += from.back().size();
    }
    if (!chain.empty()) client.post(chain);
    if (chain.empty() || from.size() % 5 == 0) server.step();
    client.poll();
  }
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(client.next, from.size());
  EXPECT_TRUE(test::same_bytes(server.memory, model));
}

TEST_P(TcpLaneTest, BurstIsAnsweredInHalves) {
  if (std::get<1>(GetParam()) != 0) GTEST_SKIP() << "these sockets take no burst at once";
  std::vector<std::vector<std::byte>> buffers(40, std::vector<std::byte>(64));
  std::vector<WorkRequest> chain;
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
    chain.clear();
    for (std::size_t i = 0; i < 40; ++i)
      chain.push_back(opcode == Opcode::kRead ? client.read(server.key(), 64 * i, buffers[i])
                                              : client.write(server.key(), 64 * i, buffers[i]));
    const std::size_t before = client.statuses.size();
    client.post(chain);
    EXPECT_EQ(server.step(), ServerLane::Progress::kMore);
    client.poll();
    EXPECT_EQ(client.statuses.size() - before, 20U) << static_cast<int>(opcode);
    server.step();
    client.poll();
    EXPECT_TRUE(client.all_good());
  }
}

TEST_P(TcpLaneTest, CompareSwapSwapsOnlyWhatItExpects) {
  std::uint64_t there = 0;
  std::memcpy(&there, server.memory.data() + 8, sizeof there);
  client.post({client.swap(server.key(), 8, there + 1, 5), client.swap(server.key(), 8, there, 7),
               client.swap(server.key(), 8, there, 9), client.add(server.key(), 8, 0)});
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  const auto results = client.lane->atomic_results();
  EXPECT_EQ(results[0], there);
  EXPECT_EQ(results[1], there);
  EXPECT_EQ(results[2], 7U);
  EXPECT_EQ(results[3], 7U);
}

TEST_P(TcpLaneTest, PostNeverBlocksWhereTheServerDoesNotRead) {
  std::vector<std::byte> from = pattern(kMaxTransferBytes, 6);
  const test::Timed timed;
  client.post({client.write(server.key(), 0, from), client.write(server.key(), 1, from)});
  client.poll();
  EXPECT_TRUE(timed.took_at_most(std::chrono::seconds{20}));
  EXPECT_TRUE(client.statuses.empty());
  ASSERT_TRUE(client.lane->arm());
  pollfd wanted{.fd = client.lane->event_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wanted, 1, 0), 0) << "neither room nor an answer";
  server.step();
  while (::poll(&wanted, 1, 0) == 0) server.step();
  until_told(client, [&] { server.step(); });
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(std::memcmp(server.memory.data() + 1, from.data(), from.size()), 0);
}

TEST_P(TcpLaneTest, RefusalIsToldOfAndEndsTheLane) {
  std::vector<std::byte> from = pattern(64, 7);
  const std::vector<std::byte> before = server.memory;
  std::vector<std::byte> model = before;
  std::memcpy(model.data(), from.data(), from.size());
  client.post({client.write(server.key(), 0, from), client.write(server.key() + 1, 128, from),
               client.write(server.key(), 256, from), client.read(server.key(), 0, from)});
  until_told(client, [&] { server.step(); });
  EXPECT_EQ(client.statuses,
            (std::vector{CompletionStatus::kSuccess, CompletionStatus::kRemoteAccessError,
                         CompletionStatus::kFlushed, CompletionStatus::kFlushed}));
  EXPECT_TRUE(test::same_bytes(server.memory, model))
      << "what stands behind a refused request is not served";
  EXPECT_EQ(server.served.refused, 1U);
  const WorkRequest late = client.read(server.key(), 0, from);
  const WorkRequest* const chain = &late;
  EXPECT_EQ(client.lane->post({&chain, 1}, client.next).taken, 0U);
}

TEST_P(TcpLaneTest, BrokenOffLaneTellsOfEachRequestOnce) {
  std::vector<std::byte> into(4096);
  client.post({20, client.read(server.key(), 0, into)});
  client.lane->move_to_error();
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, std::vector(20, CompletionStatus::kFlushed));
  while (server.step() != ServerLane::Progress::kDead) {
  }
}

TEST_P(TcpLaneTest, RevokedWhileAWriteIsHalfReceivedTouchesNothingMore) {
  std::vector<std::byte> from = pattern(kMaxTransferBytes, 8);
  client.post({client.write(server.key(), 0, from)});
  server.step();  // not all of it: sockets are smaller than that
  server.grant.handle.reset();
  const std::vector<std::byte> then = server.memory;
  if (!crc()) {
    EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
  }
  until_told(client, [&] { server.step(); });
  // With payload CRC the bytes have to be there before anything is looked up.
  EXPECT_EQ(client.statuses,
            std::vector{crc() ? CompletionStatus::kRemoteAccessError : CompletionStatus::kFlushed});
  EXPECT_TRUE(test::same_bytes(server.memory, then));
}

TEST_P(TcpLaneTest, RevokedWhileAnAnswerIsHalfSentEndsTheLane) {
  if (crc()) GTEST_SKIP() << "what is sent is a copy";
  std::vector<std::byte> into(kMaxTransferBytes);
  client.post({client.read(server.key(), 0, into)});
  server.step();
  server.grant.handle.reset();
  std::fill(server.memory.begin(), server.memory.end(), std::byte{0xee});
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, std::vector{CompletionStatus::kFlushed});
}

TEST_P(TcpLaneTest, RandomChainsMatchAModel) {
  std::vector<std::byte> model = server.memory;
  std::uint32_t state = 4711;
  const auto below = [&](std::uint32_t bound) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::uint32_t>((std::uint64_t{state} * bound) >> 32U);
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::vector<std::byte>> buffers(1 + below(64));
    std::vector<WorkRequest> chain;
    std::vector<std::vector<std::byte>> wanted;
    for (auto& buffer : buffers) {
      buffer = pattern(1 + below(below(4) == 0 ? 40'000 : 2'000), state);
      const std::uint64_t at = below(100'000);
      if (below(2) == 0) {
        chain.push_back(client.write(server.key(), at, buffer));
        std::memcpy(model.data() + at, buffer.data(), buffer.size());
        wanted.push_back(buffer);
      } else {
        chain.push_back(client.read(server.key(), at, buffer));
        const auto from = model.begin() + static_cast<std::ptrdiff_t>(at);
        wanted.emplace_back(from, from + static_cast<std::ptrdiff_t>(buffer.size()));
      }
    }
    client.post(chain);
    until_told(client, [&] { server.step(); });
    ASSERT_TRUE(client.all_good()) << round;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      ASSERT_TRUE(test::same_bytes(buffers[i], wanted[i])) << round;
    ASSERT_TRUE(test::same_bytes(server.memory, model)) << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Sockets, TcpLaneTest,
                         testing::Combine(testing::Bool(), testing::Values(0, 1)),
                         [](const auto& made) {
                           return std::string{std::get<0>(made.param) ? "Crc" : "Plain"} +
                                  (std::get<1>(made.param) == 0 ? "Large" : "Tiny");
                         });

}  // namespace
}  // namespace remora::transport::tcp
