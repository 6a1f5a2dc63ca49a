/// Both ends of a lane over a socket pair, in one thread: what a network does is done on purpose.

#include "transport/tcp/lane.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "support/timed.h"
#include "transport/tcp/server_lane.h"
#include "transport/tcp/session.h"

namespace remora::transport::tcp {
namespace {

constexpr std::size_t kRegionBytes = std::size_t{4} << 20U;

struct LaneEnds {
  UniqueFd a, b;
  /// `buffer_bytes`: of the sockets, so that a transfer takes many sends; 0: the system's.
  explicit LaneEnds(int buffer_bytes = 0) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    if (buffer_bytes > 0)
      for (const int fd : fds)
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    a = UniqueFd{fds[0]};
    b = UniqueFd{fds[1]};
  }
};

std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
  return test::noise(length, seed);
}

/// The server's memory, a session with a grant of it, and its end of a lane.
class ServerSide {
 public:
  explicit ServerSide(UniqueFd socket, bool payload_crc = false, Rights rights = Rights::kAll,
                      bool cpu_atomics = true, std::size_t region_bytes = kRegionBytes)
      : memory(pattern(region_bytes, 1)), session{Session::create().value()} {
    const MemoryStretch stretch{memory.data(), memory.size()};
    grant = session->grant({.extents = {&stretch, 1}, .rights = rights, .cpu_atomics = cpu_atomics})
                .value();
    lane = std::make_shared<ServerLane>(std::move(socket), session, payload_crc);
    EXPECT_TRUE(session->add_lane(lane));
  }
  ~ServerSide() { session->end(); }
  ServerSide(const ServerSide&) = delete;
  ServerSide& operator=(const ServerSide&) = delete;

  [[nodiscard]] std::uint32_t key() const { return grant.extents.front().remote_key; }
  ServerLane::Progress step() {
    auto progress = ServerLane::Progress::kMore;
    session->serve([&](const GrantTable& grants) {
      Served now;
      progress = lane->step(grants, now);
      served += now;
      return now;
    });
    return progress;
  }

  std::vector<std::byte> memory;
  std::shared_ptr<Session> session;
  Grant grant;
  std::shared_ptr<ServerLane> lane;
  Served served;
};

/// Polls until `count` requests have been told of; their statuses by sequence from `first` on.
class ClientSide {
 public:
  explicit ClientSide(UniqueFd socket, std::uint32_t depth = 64, bool payload_crc = false)
      : lane{TcpLane::create(std::move(socket), depth, payload_crc).value()} {}

  WorkRequest read(std::uint32_t key, std::uint64_t at, std::span<std::byte> into) {
    return {.local = into.data(),
            .length_bytes = static_cast<std::uint32_t>(into.size()),
            .remote_address = at,
            .remote_key = key,
            .opcode = Opcode::kRead};
  }
  WorkRequest write(std::uint32_t key, std::uint64_t at, std::span<std::byte> from) {
    WorkRequest request = read(key, at, from);
    request.opcode = Opcode::kWrite;
    return request;
  }
  WorkRequest add(std::uint32_t key, std::uint64_t at, std::uint64_t value) {
    return {.length_bytes = 8,
            .remote_address = at,
            .remote_key = key,
            .opcode = Opcode::kFetchAdd,
            .compare_or_add = value};
  }
  WorkRequest swap(std::uint32_t key, std::uint64_t at, std::uint64_t from, std::uint64_t to) {
    return {.length_bytes = 8,
            .remote_address = at,
            .remote_key = key,
            .opcode = Opcode::kCompareSwap,
            .compare_or_add = from,
            .swap = to};
  }
  void post(const std::vector<WorkRequest>& chain) {
    std::vector<const WorkRequest*> requests;
    requests.reserve(chain.size());
    for (const WorkRequest& request : chain) requests.push_back(&request);
    const PostOutcome outcome = lane->post(requests, next);
    EXPECT_EQ(outcome.taken, chain.size());
    next += chain.size();
  }
  void poll() {
    std::array<LaneCompletion, 8> found;
    const std::size_t count = lane->poll(found);
    for (std::size_t i = 0; i < count; ++i) {
      while (statuses.size() < found[i].sequence) statuses.push_back(CompletionStatus::kSuccess);
      EXPECT_EQ(statuses.size(), found[i].sequence) << "told of twice";
      statuses.push_back(found[i].status);
    }
  }
  [[nodiscard]] bool all_told() const { return statuses.size() == next; }
  [[nodiscard]] bool all_good() const {
    return all_told() && std::all_of(statuses.begin(), statuses.end(), [](CompletionStatus status) {
             return status == CompletionStatus::kSuccess;
           });
  }

  std::unique_ptr<Lane> lane;
  std::uint64_t next = 0;
  std::vector<CompletionStatus> statuses;
};

template <typename Move>
void until_told(ClientSide& client, Move&& move) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (!client.all_told() && std::chrono::steady_clock::now() < give_up) {
    move();
    client.poll();
  }
  EXPECT_TRUE(client.all_told());
}

/// Every size from a byte over each threshold to the largest, each way.
const std::vector<std::uint32_t>& sizes() {
  static const std::vector<std::uint32_t> all{
      1,     7,     8,     1023,  1024,   1025,    4096,
      16383, 16384, 32768, 65536, 300001, 1048575, kTransferBytesMax};
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
  std::vector<std::byte> from = pattern(kTransferBytesMax, 6);
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
  std::vector<std::byte> from = pattern(kTransferBytesMax, 8);
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
  std::vector<std::byte> into(kTransferBytesMax);
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

/// A client whose server is the test: it says what the test wants.
class TcpAnswersTest : public testing::Test {
 protected:
  void answer(const AnswerHeader& header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    header.to_wire(wire);
    raw(wire);
    raw(payload);
  }
  void raw(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(pair.a.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void expect_lost(CompletionStatus first) {
    until_told(client, [] {});
    EXPECT_EQ(client.statuses.front(), first);
    EXPECT_NE(client.statuses.back(), CompletionStatus::kSuccess);
  }
  LaneEnds pair;
  ClientSide client{std::move(pair.b)};
  std::vector<std::byte> into = std::vector<std::byte>(100);
};

TEST_F(TcpAnswersTest, ByteByByteIsAsGood) {
  std::vector<std::byte> large(5000);
  client.post({client.read(1, 0, into), client.read(1, 0, large), client.add(1, 0, 1)});
  const std::vector<std::byte> small_bytes = pattern(100, 1);
  const std::vector<std::byte> large_bytes = pattern(5000, 2);
  const std::vector<std::byte> value = pattern(8, 3);
  std::vector<std::byte> stream;
  const auto put = [&](std::uint32_t sequence, Opcode opcode, std::span<const std::byte> bytes) {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    AnswerHeader{.opcode = opcode,
                 .sequence = sequence,
                 .length_bytes = static_cast<std::uint32_t>(bytes.size())}
        .to_wire(wire);
    stream.insert(stream.end(), wire.begin(), wire.end());
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  };
  put(0, Opcode::kRead, small_bytes);
  put(1, Opcode::kRead, large_bytes);
  put(2, Opcode::kFetchAdd, value);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    EXPECT_FALSE(client.all_told()) << i;
    raw(std::span{stream}.subspan(i, 1));
    client.poll();
  }
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(into, small_bytes);
  EXPECT_EQ(large, large_bytes);
  EXPECT_EQ(std::memcmp(&client.lane->atomic_results()[2], value.data(), 8), 0);
}

TEST_F(TcpAnswersTest, SmallOnesMayBeCutAnywhere) {
  const std::vector<std::byte> bytes = pattern(100, 1);
  const std::vector<std::byte> value = pattern(8, 3);
  std::uint32_t sequence = 0;
  const auto stream = [&] {  // of a read, a write, an atomic
    std::vector<std::byte> all;
    const auto put = [&](Opcode opcode, std::span<const std::byte> payload) {
      std::array<std::byte, AnswerHeader::kWireBytes> wire{};
      AnswerHeader{.opcode = opcode,
                   .sequence = sequence,
                   .length_bytes = static_cast<std::uint32_t>(payload.size())}
          .to_wire(wire);
      all.insert(all.end(), wire.begin(), wire.end());
      all.insert(all.end(), payload.begin(), payload.end());
      ++sequence;
    };
    put(Opcode::kRead, bytes);
    put(Opcode::kWrite, {});
    put(Opcode::kFetchAdd, value);
    return all;
  };
  for (std::size_t cut = 1; cut < 3 * AnswerHeader::kWireBytes + 108; ++cut) {
    std::fill(into.begin(), into.end(), std::byte{0});
    std::vector<std::byte> source(9);
    client.post({client.read(1, 0, into), client.write(1, 0, source)});
    client.post({client.add(1, 0, 1)});
    std::array<std::byte, 512> requests;
    while (::recv(pair.a.get(), requests.data(), requests.size(), MSG_DONTWAIT) > 0) {
    }
    const std::vector<std::byte> all = stream();
    raw(std::span{all}.first(cut));
    client.poll();
    EXPECT_FALSE(client.all_told()) << cut;
    raw(std::span{all}.subspan(cut));
    client.poll();
    ASSERT_TRUE(client.all_good()) << cut;
    EXPECT_EQ(into, bytes) << cut;
    const auto results = client.lane->atomic_results();
    EXPECT_EQ(std::memcmp(&results[(client.next - 1) & (results.size() - 1)], value.data(), 8), 0);
  }
}

TEST_F(TcpAnswersTest, UnrequestedBytesEndTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100}, pattern(100, 9));
  raw(pattern(AnswerHeader::kWireBytes, 4));
  client.poll();
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(into, pattern(100, 9));
  client.post({client.read(1, 0, into)});
  until_told(client, [] {});
  EXPECT_EQ(client.statuses.back(), CompletionStatus::kBadResponse);
  EXPECT_EQ(into, pattern(100, 9));
}

TEST_F(TcpAnswersTest, FailureNeedsNothingBehindIt) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteInvalidRequest, .sequence = 0});
  expect_lost(CompletionStatus::kRemoteInvalidRequest);
}

TEST_F(TcpAnswersTest, FailureOfAnUnansweredWriteIsThatOnes) {
  client.post({3, client.write(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteAccessError, .opcode = Opcode::kWrite, .sequence = 1});
  until_told(client, [] {});
  EXPECT_EQ(client.statuses,
            (std::vector{CompletionStatus::kSuccess, CompletionStatus::kRemoteAccessError,
                         CompletionStatus::kFlushed}));
}

TEST_F(TcpAnswersTest, HeaderWithAWrongSumEndsTheLane) {
  client.post({client.read(1, 0, into)});
  raw(pattern(AnswerHeader::kWireBytes, 1));
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, AnswerToAnotherRequestEndsTheLane) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.sequence = 1, .length_bytes = 100}, into);
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, FailureOfARequestNeverPostedEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteAccessError, .sequence = 7});
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, AnswerOfAnotherLengthOrKindEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 101}, into);
  expect_lost(CompletionStatus::kBadResponse);
  ClientSide other{std::move(LaneEnds{}.b)};
  LaneEnds second;
  ClientSide another{std::move(second.b)};
  another.post({another.read(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.opcode = Opcode::kFetchAdd, .length_bytes = 100}.to_wire(wire);
  EXPECT_GT(::send(second.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  until_told(another, [] {});
  EXPECT_EQ(another.statuses, std::vector{CompletionStatus::kBadResponse});
}

TEST_F(TcpAnswersTest, WhatCameBeforeTheHangUpCounts) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100}, pattern(100, 9));
  pair.a.reset();
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, (std::vector{CompletionStatus::kSuccess, CompletionStatus::kFlushed}));
  EXPECT_EQ(into, pattern(100, 9));
}

TEST(TcpPayloadCrc, CorruptReadIsABadResponse) {
  LaneEnds pair;
  ClientSide client{std::move(pair.b), 8, true};
  std::vector<std::byte> into(64);
  client.post({client.read(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.length_bytes = 64, .payload_crc = 12345}.to_wire(wire);
  ASSERT_GT(::send(pair.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  ASSERT_GT(::send(pair.a.get(), pattern(64, 1).data(), 64, MSG_NOSIGNAL), 0);
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, std::vector{CompletionStatus::kBadResponse});
  EXPECT_EQ(into, std::vector<std::byte>(64)) << "staged, checked, and not copied";
}

/// Whether or not the lane has sums: by such an answer nothing is known to have succeeded.
TEST_F(TcpAnswersTest, SumOfNothingEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100, .payload_crc = 7}, into);
  expect_lost(CompletionStatus::kBadResponse);
  LaneEnds second;
  ClientSide summed{std::move(second.b), 8, true};
  summed.post({summed.write(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.opcode = Opcode::kWrite, .payload_crc = 7}.to_wire(wire);
  ASSERT_GT(::send(second.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  until_told(summed, [] {});
  EXPECT_EQ(summed.statuses, std::vector{CompletionStatus::kBadResponse});
}

/// Crafted requests of a client that is the test.
class TcpRequestsTest : public testing::Test {
 protected:
  void send(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(pair.b.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void request(const RequestHeader& header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, RequestHeader::kWireBytes> wire{};
    header.to_wire(wire);
    send(wire);
    send(payload);
  }
  void serve(ServerSide& server) {
    for (int i = 0; i < 20 && server.step() != ServerLane::Progress::kDead; ++i) {
    }
  }
  CompletionStatus status() {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    if (::recv(pair.b.get(), wire.data(), wire.size(), MSG_DONTWAIT) !=
        static_cast<ssize_t>(wire.size()))
      return CompletionStatus::kFlushed;
    return AnswerHeader::from_wire(wire).value().status;
  }
  LaneEnds pair;
};

TEST_F(TcpRequestsTest, CorruptWriteIsRefusedAndChangesNothing) {
  ServerSide server{std::move(pair.a), true};
  const std::vector<std::byte> before = server.memory;
  request({.opcode = Opcode::kWrite, .length_bytes = 64, .key = server.key(), .payload_crc = 1},
          pattern(64, 2));
  serve(server);
  EXPECT_EQ(status(), CompletionStatus::kRemoteOperationError);
  EXPECT_TRUE(test::same_bytes(server.memory, before));
  EXPECT_EQ(server.served.corrupt, 1U);
}

TEST_F(TcpRequestsTest, MayBeCutAnywhere) {
  // A small read, a small write, an atomic and a read of both: the same answers wherever they are
  // cut.
  std::vector<std::byte> stream;
  const auto put = [&](RequestHeader header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, RequestHeader::kWireBytes> wire{};
    header.to_wire(wire);
    stream.insert(stream.end(), wire.begin(), wire.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  };
  const std::vector<std::byte> bytes = pattern(70, 7);
  std::vector<std::byte> answers;
  std::size_t length = 1;
  for (std::size_t cut = 0; cut < length; ++cut) {
    LaneEnds ends;
    ServerSide server{std::move(ends.a), false, Rights::kAll, true, 4096};
    stream.clear();
    put({.length_bytes = 100, .address = 3, .key = server.key(), .sequence = 9});
    put({.opcode = Opcode::kWrite,
         .answered = false,
         .length_bytes = 70,
         .address = 8,
         .key = server.key(),
         .sequence = 10},
        bytes);
    put({.opcode = Opcode::kFetchAdd,
         .length_bytes = 8,
         .address = 80,
         .key = server.key(),
         .sequence = 11,
         .compare_or_add = 5});
    put({.length_bytes = 100, .key = server.key(), .sequence = 12});
    length = stream.size();
    for (const auto& part : {std::span{stream}.first(cut), std::span{stream}.subspan(cut)}) {
      if (part.empty()) continue;
      ASSERT_EQ(::send(ends.b.get(), part.data(), part.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(part.size()));
      for (int i = 0; i < 4; ++i) ASSERT_NE(server.step(), ServerLane::Progress::kDead) << cut;
    }
    std::vector<std::byte> got(1000);
    const ssize_t count = ::recv(ends.b.get(), got.data(), got.size(), MSG_DONTWAIT);
    ASSERT_EQ(count, static_cast<ssize_t>(3 * AnswerHeader::kWireBytes + 100 + 8 + 100)) << cut;
    got.resize(static_cast<std::size_t>(count));
    if (cut == 0) answers = got;
    EXPECT_EQ(got, answers) << cut;
    EXPECT_EQ(std::memcmp(got.data() + got.size() - 92, bytes.data(), 70), 0) << cut;
    EXPECT_EQ(std::memcmp(server.memory.data() + 8, bytes.data(), 70), 0) << cut;
    EXPECT_EQ(server.served.operations, (std::array<std::uint64_t, 4>{2, 1, 0, 1})) << cut;
  }
}

TEST_F(TcpRequestsTest, NonsenseHangsUp) {
  ServerSide server{std::move(pair.a)};
  send(pattern(4096, 3));
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, SequenceThatJumpsHangsUp) {
  ServerSide server{std::move(pair.a)};
  request({.length_bytes = 8, .key = server.key(), .sequence = 5});
  request({.length_bytes = 8, .key = server.key(), .sequence = 7});
  serve(server);
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
  EXPECT_EQ(server.served.operations[0], 1U);
}

TEST_F(TcpRequestsTest, TruncatedWriteHangsUpWithItsClient) {
  ServerSide server{std::move(pair.a)};
  request({.opcode = Opcode::kWrite, .length_bytes = 4096, .key = server.key()}, pattern(100, 4));
  EXPECT_EQ(server.step(), ServerLane::Progress::kIdle);
  pair.b.reset();
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, RefusedClientHasTimeToHearOfIt) {
  ServerSide server{std::move(pair.a)};
  request({.length_bytes = 8, .address = kRegionBytes, .key = server.key()});
  for (std::uint32_t i = 1; i < 50; ++i)
    request({.length_bytes = 8, .key = server.key(), .sequence = i});
  for (int i = 0; i < 20; ++i) EXPECT_NE(server.step(), ServerLane::Progress::kDead);
  EXPECT_TRUE(server.lane->refused());
  EXPECT_EQ(server.served.operations[0], 0U);
  EXPECT_EQ(status(), CompletionStatus::kRemoteAccessError);
  pair.b.reset();
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, PeerThatDoesNotReadIsNotReadFrom) {
  ServerSide server{std::move(pair.a)};
  std::uint32_t sequence = 0;
  bool blocked = false;
  for (int i = 0; i < 200 && !blocked; ++i) {
    request({.length_bytes = 65536, .key = server.key(), .sequence = sequence++});
    blocked = server.step() == ServerLane::Progress::kBlocked;
  }
  EXPECT_TRUE(blocked);
  const std::uint64_t served = server.served.operations[0];
  request({.length_bytes = 65536, .key = server.key(), .sequence = sequence++});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(server.step(), ServerLane::Progress::kBlocked);
  EXPECT_EQ(server.served.operations[0], served);
}

}  // namespace
}  // namespace remora::transport::tcp
