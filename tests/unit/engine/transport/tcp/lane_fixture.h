#pragma once

/// Both ends of a lane over a socket pair, in one thread: a test decides what the network does.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "support/pattern.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/server_lane.h"

namespace remora::transport::tcp {

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

inline std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
  return test::noise(length, seed);
}

/// The server's memory, a session with a grant of it, and its end of a lane.
class ServerSide {
 public:
  explicit ServerSide(UniqueFd socket, bool payload_crc = false, Rights rights = Rights::kAll,
                      bool cpu_atomics = true, std::size_t region_bytes = kRegionBytes)
      : memory(pattern(region_bytes, 1)), session{ServedSession::create().value()} {
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
  ServerLane::Progress step() { return step(buffers); }
  ServerLane::Progress step(LaneBuffers& with, std::uint64_t bytes_max = kMaxStepBytes) {
    auto progress = ServerLane::Progress::kMore;
    session->serve([&](const GrantTable& grants) {
      ServedCounts now;
      progress = lane->step(grants, with, now, bytes_max);
      served += now;
      return now;
    });
    return progress;
  }

  std::vector<std::byte> memory;
  std::shared_ptr<ServedSession> session;
  Grant grant;
  std::shared_ptr<ServerLane> lane;
  LaneBuffers buffers;
  ServedCounts served;
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
            .operands = {.atomic = {.compare_or_add = value}}};
  }
  WorkRequest swap(std::uint32_t key, std::uint64_t at, std::uint64_t from, std::uint64_t to) {
    return {.length_bytes = 8,
            .remote_address = at,
            .remote_key = key,
            .opcode = Opcode::kCompareSwap,
            .operands = {.atomic = {.compare_or_add = from, .swap = to}}};
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

}  // namespace remora::transport::tcp
