/// What the application is told of a session: in order, by one thread at a time, and with no lock
/// held, so that a handler may do what it likes, but for ending the engine.

#include <exception>
#include <utility>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/session/session_core.h"

namespace remora::detail {

SessionCore::Turn::Turn(SessionCore& session) noexcept : session_{session} {
  session_.turning_.lock();
  ++session_.turns_;
}

SessionCore::Turn::~Turn() {
  const bool last = --session_.turns_ == 0;
  session_.turning_.unlock();
  if (last) session_.tell_news();
}

void SessionCore::add_news(const SessionHandlers::Handler& handler, Reason reason) {
  if (!handler) return;
  const std::lock_guard lock{mutex_};
  news_.push_back({&handler, reason});
}

/// Tells what there is to be told, unless another thread is at that. Where the session is connected
/// again that is the thread that does so.
void SessionCore::tell_news() noexcept {
  std::shared_ptr<SessionCore> self;
  {
    std::unique_lock lock{mutex_};
    const bool elsewhere = reconnector_at_work_ && std::this_thread::get_id() != reconnecting_;
    if (news_.empty() || telling_ || elsewhere) return;
    self = weak_from_this().lock();
    if (self == nullptr) return news_.clear();  // it is about to go, with nobody to be told
    telling_ = true;
    while (!news_.empty()) {
      const News news = news_.front();
      news_.pop_front();
      lock.unlock();
      tell(news);
      lock.lock();
    }
    telling_ = false;
  }
  // A handler may have let go of the session; the thread that connects again cannot end it.
  loop_.run_soon([self = std::move(self)] {});
}

void SessionCore::tell(const News& news) const noexcept {
  const HandlerGate::Pass pass{engine_->handler_gate()};
  if (!pass) return;
  try {
    (*news.handler)({.server = dial_.server, .transport = kind_, .reason = news.reason});
  } catch (const std::exception& error) {
    log::warn("session with {}: a handler threw: {}", dial_.server, error.what());
  } catch (...) {
    log::warn("session with {}: a handler threw", dial_.server);
  }
}

}  // namespace remora::detail
