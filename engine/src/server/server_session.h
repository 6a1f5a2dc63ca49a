#pragma once

/// One client, as the server sees it: its endpoint, its grants, its requests.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/messages.h"
#include "server/catalog.h"
#include "server/server_metrics.h"
#include "support/clock.h"
#include "transport/transport.h"

namespace remora::detail {

class ServerCore;

/// receive side: control thread; everything else: the worker.
class ServerSession {
 public:
  ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                std::unique_ptr<transport::ServerEndpoint> endpoint);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] transport::ServerEndpoint& endpoint() const noexcept { return *endpoint_; }
  [[nodiscard]] bool greeted() const noexcept { return greeted_.load(); }
  /// Control thread: whether anything came, answered or not: the worker may be busy with others.
  [[nodiscard]] bool heard() const noexcept { return heard_.load(); }
  void hear() noexcept { heard_.store(true); }
  [[nodiscard]] Clock::time_point began() const noexcept { return began_; }

  /// Control thread: whether the client keeps within what it may have unanswered.
  [[nodiscard]] bool admit_request() noexcept;
  /// Worker: serves one message. False: the peer does not follow the protocol; end the session.
  bool serve(const transport::ControlMessage& message, Clock::time_point arrived);
  /// Worker: gives all grants back.
  void release() noexcept;

 private:
  struct OpenGrant {
    std::shared_ptr<RegionEntry> region;
    transport::Grant grant;
  };
  struct Answer {
    control::Reply reply;
    std::vector<UniqueFd> descriptors;
  };
  Result<Answer> answer(const control::Request& request);
  Result<Answer> hello(const control::Hello& hello);
  Result<Answer> create(const control::CreateRequest& request);
  Result<Answer> open(const control::OpenRequest& request);
  Result<Answer> extents(const control::ExtentsRequest& request);
  Result<Answer> close(const control::CloseRequest& request);
  Result<Answer> list(const control::ListRequest& request);
  Result<Answer> stat(const control::StatRequest& request);
  Result<Answer> remove(const control::RemoveRequest& request);

  ServerCore& server_;
  std::uint64_t id_;
  std::uint64_t lane_secret_;
  std::unique_ptr<transport::ServerEndpoint> endpoint_;
  std::unordered_map<std::uint64_t, OpenGrant> grants_;
  std::uint64_t next_grant_id_ = 1;
  std::atomic<std::size_t> unanswered_{0};
  std::atomic<bool> heard_{false};
  std::atomic<bool> greeted_{false};
  Clock::time_point began_ = Clock::now();
};

}  // namespace remora::detail
