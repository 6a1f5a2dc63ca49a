#pragma once

/// One client, as the server sees it: its endpoint, its grants, its requests.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/messages.h"
#include "server/catalog.h"
#include "server/notifier.h"
#include "server/server_metrics.h"
#include "support/clock.h"
#include "transport/transport.h"

namespace remora::detail {

class ServerCore;

/// receive side: control thread; everything else: the worker.
class ServerSession final : public Notifier::Origin,
                            public std::enable_shared_from_this<ServerSession> {
 public:
  ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                std::unique_ptr<transport::ServerEndpoint> endpoint);
  ~ServerSession() override;
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
  /// Hands a notice on to the application. Errors: kProtocol: the client may not say that;
  /// kWouldBlock: kNoticesMax are not handled yet.
  Status announce(const transport::Notice& notice);
  [[nodiscard]] bool has_room_for_notices() const noexcept {
    return notices_unhandled_.load() < transport::kNoticesMax;
  }
  /// Control thread: notices are left with the endpoint until look_for_notices() comes. False:
  /// there is room after all.
  [[nodiscard]] bool hold_up() noexcept {
    held_up_.store(true);
    return !has_room_for_notices();
  }
  /// Any thread.
  void notice_handled() noexcept override;
  /// Worker: gives all grants back.
  void release() noexcept;

 private:
  struct OpenGrant {
    std::shared_ptr<RegionEntry> region;
    transport::Grant grant;
    Rights rights = Rights::kNone;
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
  Result<Answer> notify(const control::NotifyRequest& request);

  ServerCore& server_;
  std::uint64_t id_;
  std::uint64_t lane_secret_;
  std::unique_ptr<transport::ServerEndpoint> endpoint_;
  std::mutex grants_mutex_;  // changed by the worker, read by the control thread too
  std::unordered_map<std::uint64_t, OpenGrant> grants_;
  std::uint64_t next_grant_id_ = 1;
  std::atomic<std::size_t> unanswered_{0};
  std::atomic<std::size_t> notices_unhandled_{0};
  std::atomic<bool> held_up_{false};
  std::atomic<bool> heard_{false};
  std::atomic<bool> greeted_{false};
  Clock::time_point began_ = Clock::now();
};

}  // namespace remora::detail
