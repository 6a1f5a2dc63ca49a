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

namespace remora::detail {

class Notifier {
 public:
  explicit Notifier(ServerMetrics metrics) : metrics_{std::move(metrics)} {}
  ~Notifier() { stop(); }
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// See Server::on_notify.
  Status on_notify(std::string region, NotificationHandler handler);

  /// Whoever a notification comes from: told when it has been handled.
  class Origin {
   public:
    virtual ~Origin() = default;
    virtual void notice_handled() noexcept = 0;
  };
  void deliver(Notification notification, std::shared_ptr<Origin> origin);
  /// Drops what has not been handled; on return no handler runs. Idempotent.
  void stop() noexcept;

 private:
  struct Waiting {
    Notification notification;
    std::shared_ptr<Origin> origin;
  };
  void run() noexcept;

  ServerMetrics metrics_;
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<const NotificationHandler>, std::less<>> handlers_;
  std::deque<Waiting> waiting_;  // bounded by what each session may have unhandled
  const NotificationHandler* running_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace remora::detail
