#pragma once

/// A thread that serves lanes over tcp.

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/service_state.h"
#include "base/service_thread.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/served_metrics.h"
#include "transport/tcp/server_lane.h"

namespace remora::transport::tcp {

/// Serves a group of lanes in turn, in steps of bounded length, so that no lane waits long for
/// another. Sleeps in epoll when no bytes have come for `spin`; until then it polls the sockets
/// that were served last, which uses a whole core.
class IoThread {
 public:
  /// Errors: kSystem.
  static Result<std::shared_ptr<IoThread>> start(ServedMetrics metrics,
                                                 std::chrono::nanoseconds spin);
  IoThread(ServedMetrics metrics, std::chrono::nanoseconds spin);
  ~IoThread() = default;
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  /// Serves the lane until it ends. Any thread. Errors: kSystem.
  Status add(std::shared_ptr<ServerLane> lane);
  /// There is room again for the notices of a session whose lanes may be parked. Any thread.
  void retry_parked() noexcept { service_.wake(); }

 private:
  using Progress = ServerLane::Progress;
  struct Active {
    ServerLane* lane;
    Clock::time_point served;
  };
  void run() noexcept;
  [[nodiscard]] int sleep_ms() const noexcept;
  bool await_events(int timeout_ms) noexcept;
  void serve_active(Clock::time_point now) noexcept;
  /// Whether a lane stays among the active ones.
  enum class Stays : std::uint8_t { kYes, kNo, kEnded };
  Stays serve_one(Active& active, Clock::time_point now) noexcept;
  void unpark(Clock::time_point now) noexcept;
  void activate(ServerLane& lane, Clock::time_point now);
  void watch(ServerLane& lane, std::uint32_t events) noexcept;
  void end_lane(ServerLane& lane) noexcept;
  void keep_session(ServerLane& lane) noexcept;
  void end_refused(Clock::time_point now) noexcept;
  void report() noexcept;

  ServedMetrics metrics_;
  std::chrono::nanoseconds spin_;
  ServiceState service_;

  remora::detail::Mutex mutex_;
  /// Any thread adds lanes, this thread removes them.
  std::unordered_map<const ServerLane*, std::shared_ptr<ServerLane>> lanes_
      REMORA_GUARDED_BY(mutex_);

  // Used only by this thread.
  struct Refused {
    ServerLane* lane;
    Deadline until;
  };
  std::vector<Active> active_;
  Clock::time_point moved_at_ = Clock::now();
  std::vector<Refused> refused_;
  std::vector<ServerLane*> parked_;
  LaneBuffers buffers_;
  ServedCounts served_;
  std::uint64_t since_look_bytes_ = 0;  ///< served since the last look at all lanes
  ServiceThread thread_;                ///< destroyed first, which stops it
};

}  // namespace remora::transport::tcp
