#pragma once

/// Tells the serving application of writes: on a thread of its own, which starts with the first
/// handler, so that a slow handler holds up only the clients that write with notices.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <remora/engine/server.h>
#include <remora/result.h>

#include "server/server_metrics.h"
#include "transport/notice.h"

namespace remora::detail {

class Notifier {
 public:
  explicit Notifier(ServerMetrics metrics) : metrics_{std::move(metrics)} {}
  ~Notifier() { stop(); }
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// See Server::on_notify.
  Status on_notify(std::string region, NotificationHandler handler);

  /// Whom a notification comes from. Small, since it stays with what has not been handled when its
  /// session has long ended.
  class Origin {
   public:
    virtual ~Origin() = default;
    virtual void notice_handled() noexcept = 0;
    /// Nobody waits for room here any more.
    [[nodiscard]] virtual bool ended() const noexcept = 0;
  };
  /// What waits of sessions that have ended, beyond this many in all, is dropped and counted.
  static constexpr std::size_t kMaxWaiting = std::size_t{64} * transport::kNoticesMax;
  void deliver(Notification notification, std::shared_ptr<Origin> origin);
  /// Drops what has not been handled; on return no handler runs, unless it is the caller.
  /// Idempotent.
  void stop() noexcept;

 private:
  struct Waiting {
    Notification notification;
    std::shared_ptr<Origin> origin;
  };
  void run() noexcept;
  void make_room() noexcept;

  ServerMetrics metrics_;
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<const NotificationHandler>, std::less<>> handlers_;
  /// Bounded by what each session may have unhandled, and kMaxWaiting.
  std::deque<Waiting> waiting_;
  const NotificationHandler* running_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace remora::detail
