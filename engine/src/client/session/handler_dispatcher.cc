#include "client/session/handler_dispatcher.h"

#include <exception>
#include <memory>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

void HandlerDispatcher::add(const SessionHandlers::Handler& handler, Reason reason) {
  if (!handler) return;
  const MutexLock lock{mutex_};
  queue_.push_back({&handler, reason});
}

void HandlerDispatcher::dispatch() noexcept {
  std::shared_ptr<SessionCore> self;
  {
    MutexLock lock{mutex_};
    const bool elsewhere = reserved_ && std::this_thread::get_id() != reserved_for_;
    if (queue_.empty() || dispatching_ || elsewhere) return;
    self = session_.weak_from_this().lock();
    if (self == nullptr) return queue_.clear();  // the application has released the session
    dispatching_ = true;
    while (!queue_.empty()) {
      const Call call = queue_.front();
      queue_.pop_front();
      lock.unlock();
      make(call);
      lock.lock();
    }
    dispatching_ = false;
  }
  // A handler may have destroyed the last handle of the session. This thread may be the
  // reconnector's, which must not run the session's destructor, so the control thread runs it.
  session_.loop().run_soon([kept = std::move(self)] {});
}

void HandlerDispatcher::reserve() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(!reserved_, "one thread at a time reserves the handlers");
  reserved_ = true;
  reserved_for_ = {};
}

void HandlerDispatcher::reserve_for_this_thread() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(reserved_, "a thread that connects again has reserved the handlers");
  reserved_for_ = std::this_thread::get_id();
}

bool HandlerDispatcher::release() {
  const MutexLock lock{mutex_};
  if (!queue_.empty() && !dispatching_) return false;
  reserved_ = false;
  reserved_for_ = {};
  return true;
}

void HandlerDispatcher::release_unused() {
  const MutexLock lock{mutex_};
  reserved_ = false;
}

void HandlerDispatcher::make(const Call& call) const noexcept {
  const HandlerGate::Pass pass{session_.engine().handler_gate()};
  if (!pass) return;
  const std::string& server = session_.server_address();
  try {
    (*call.handler)({.server = server, .transport = session_.kind(), .reason = call.reason});
  } catch (const std::exception& error) {
    log::warn({"callback.threw", "server reason"}, "session with {}: a handler threw: {}", server,
              error.what());
  } catch (...) {
    log::warn({"callback.threw", "server"}, "session with {}: a handler threw", server);
  }
}

}  // namespace remora::detail
