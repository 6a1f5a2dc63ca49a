#pragma once

/// Calls the application's handlers for notices of writes, on a thread of its own that starts with
/// the first handler: a slow handler delays only the clients that send notices.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <remora/engine/server.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "server/server_metrics.h"
#include "transport/notice.h"

namespace remora::detail {

/// Thread-safe.
class Notifier {
 public:
  explicit Notifier(ServerMetrics metrics) : metrics_{std::move(metrics)} {}
  ~Notifier() { stop(); }
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// See Server::on_notify.
  Status on_notify(std::string region, NotificationHandler handler) REMORA_EXCLUDES(mutex_);

  /// The session that a notification comes from. A small object, since it is kept with unhandled
  /// notifications after the session has ended.
  class Origin {
   public:
    virtual ~Origin() = default;
    /// A notification of this session has been handled, or dropped.
    virtual void notice_handled() noexcept = 0;
    /// Whether the session has ended, and so does not wait for room any more.
    [[nodiscard]] virtual bool ended() const noexcept = 0;
  };
  /// Beyond this number of waiting notifications, those of ended sessions are dropped and counted.
  static constexpr std::size_t kMaxWaiting = std::size_t{64} * transport::kMaxNotices;
  void deliver(Notification notification, std::shared_ptr<Origin> origin) REMORA_EXCLUDES(mutex_);
  /// Drops the waiting notifications; on return no handler runs, except the caller's own.
  /// Idempotent.
  void stop() noexcept REMORA_EXCLUDES(mutex_);

 private:
  struct Waiting {
    Notification notification;
    std::shared_ptr<Origin> origin;
  };
  void run() noexcept REMORA_EXCLUDES(mutex_);
  void call(const NotificationHandler* handler, const Notification& notification) noexcept;
  void make_room() noexcept REMORA_REQUIRES(mutex_);

  const ServerMetrics metrics_;
  Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::shared_ptr<const NotificationHandler>, std::less<>> handlers_
      REMORA_GUARDED_BY(mutex_);
  /// Bounded by the notices that each session may have unhandled, and by kMaxWaiting.
  std::deque<Waiting> waiting_ REMORA_GUARDED_BY(mutex_);
  const NotificationHandler* running_ REMORA_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  /// Started with the lock held; joined by stop(), after which no thread is started.
  std::thread thread_;
};

}  // namespace remora::detail
