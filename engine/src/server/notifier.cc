#include "server/notifier.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

Status Notifier::on_notify(std::string region, NotificationHandler handler) {
  MutexLock lock{mutex_};
  if (stopping_) return Error{Code::kClosed, "on_notify"};
  std::shared_ptr<const NotificationHandler> before;
  if (const auto found = handlers_.find(region); found != handlers_.end())
    before = std::move(found->second);
  if (handler)
    handlers_[std::move(region)] = std::make_shared<const NotificationHandler>(std::move(handler));
  else
    handlers_.erase(region);
  if (!thread_.joinable() && !handlers_.empty()) {
    auto thread = start_thread("remora-notify", [this] { run(); });
    if (!thread) {
      handlers_.clear();
      return thread.error();
    }
    thread_ = std::move(*thread);
  }
  // A handler may replace itself. For every other caller, the replaced handler does not run any
  // more on return.
  if (before != nullptr && std::this_thread::get_id() != thread_.get_id())
    changed_.wait(lock, [&] {
      mutex_.assert_held();
      return running_ != before.get();
    });
  return {};
}

void Notifier::deliver(Notification notification, std::shared_ptr<Origin> origin) {
  {
    const MutexLock lock{mutex_};
    if (!stopping_ && handlers_.contains(notification.region)) {
      make_room();
      waiting_.push_back({std::move(notification), std::move(origin)});
      changed_.notify_all();
      return;
    }
  }
  metrics_.notification(ServerMetrics::HandlerResult::kNoHandler);
  origin->notice_handled();
}

/// Drops notices of sessions that have ended: clients that connect, send many notices and leave
/// must not fill the server's memory.
void Notifier::make_room() noexcept {
  if (waiting_.size() < kMaxWaiting) return;
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [](const Waiting& waiting) { return waiting.origin->ended(); });
  if (found == waiting_.end()) return;
  waiting_.erase(found);
  metrics_.notification(ServerMetrics::HandlerResult::kNoHandler);
}

void Notifier::run() noexcept {
  MutexLock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] {
      mutex_.assert_held();
      return stopping_ || !waiting_.empty();
    });
    if (stopping_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const auto found = handlers_.find(next.notification.region);
    auto handler = found != handlers_.end() ? found->second : nullptr;
    running_ = handler.get();
    lock.unlock();
    call(handler.get(), next.notification);
    next.origin->notice_handled();
    next.origin.reset();
    handler
        .reset();  // the last reference destroys the handler's captures, which may call this class
    lock.lock();
    running_ = nullptr;
    changed_.notify_all();
  }
}

/// `handler`: null if the region no longer has a handler.
void Notifier::call(const NotificationHandler* handler, const Notification& notification) noexcept {
  if (handler == nullptr) return metrics_.notification(ServerMetrics::HandlerResult::kNoHandler);
  ServerMetrics::HandlerResult result = ServerMetrics::HandlerResult::kHandled;
  try {
    (*handler)(notification);
  } catch (const std::exception& error) {
    result = ServerMetrics::HandlerResult::kThrew;
    log::warn({"callback.threw", "region reason"},
              "notification of region {}: the handler threw: {}", notification.region,
              error.what());
  } catch (...) {
    result = ServerMetrics::HandlerResult::kThrew;
    log::warn({"callback.threw", "region"}, "notification of region {}: the handler threw",
              notification.region);
  }
  metrics_.notification(result);
}

void Notifier::stop() noexcept {
  {
    const MutexLock lock{mutex_};
    stopping_ = true;
    changed_.notify_all();
  }
  // A handler may stop its server. The thread then ends after the handler has returned, and the
  // destructor waits for that.
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  std::deque<Waiting> dropped;
  const MutexLock lock{mutex_};
  dropped.swap(waiting_);
}

}  // namespace remora::detail
