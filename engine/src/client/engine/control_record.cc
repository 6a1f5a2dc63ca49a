#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/control.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/job_threads.h"
#include "client/queue/coroutine_inbox.h"
#include "client/queue/executor_core.h"
#include "client/services/control_calls.h"
#include "client/services/engine_services.h"
#include "client/services/poller.h"

namespace remora::detail {

ControlRecord::ControlRecord(std::shared_ptr<EngineServices> engine, Operation operation,
                             const ControlOptions& options)
    : engine_{std::move(engine)}, operation_{operation}, options_{options} {
  run = &ControlRecord::told;
}

ControlRecord::~ControlRecord() = default;

Error ControlRecord::threw(const char* what) noexcept {
  return Error{Code::kSystem, "control call: an exception left it"}.with_subject(what);
}

Status ControlRecord::start(bool await) noexcept {
  if (engine_ == nullptr) return closed_handle(operation_, false);
  try {
    if (auto status = prepare(await); !status) return status;
    auto loop = engine_->control_loop();
    if (!loop) return not_begun(loop.error());
    calls_ = engine_->control_calls();
    until_ = deadline_after(options_.deadline);
    if (stop_.stop_possible())
      on_stop_.emplace(stop_, [weak = weak_from_this()] {
        if (const auto alive = weak.lock()) (void)alive->cancel();
      });
    const Status added = calls_->add(shared_from_this(), **loop);
    if (!added) return not_begun(added.error());
    return {};
  } catch (const std::bad_alloc&) {
    return not_begun(Error{Code::kOutOfMemory, operation_});
  } catch (const std::system_error& error) {
    return not_begun(Error{Code::kSystem, "start a thread"}.with_errno(error.code().value()));
  } catch (const std::exception& error) {  // thrown by oneTBB
    return not_begun(Error{Code::kSystem, operation_}.with_subject(error.what()));
  }
}

/// Chooses the thread that reports the end of the call.
Status ControlRecord::prepare(bool await) {
  ExecutorCore* const executor = await ? ExecutorCore::current() : nullptr;
  if (executor != nullptr) {
    auto inbox = executor->inbox();
    if (!inbox) return inbox.error();
    inbox_ = std::move(*inbox);
    inbox_->begin_await();
    awaited_in_ = inbox_.get();
    return {};
  }
  held_ = options_.resume.post_ == nullptr;
  if (options_.resume.on_arena_) {
    auto arena = engine_->arena();
    if (!arena) return arena.error();
  } else if (held_) {
    auto poller = engine_->poller();
    if (!poller) return poller.error();
    poller_ = *poller;
  }
  return {};
}

Error ControlRecord::not_begun(const Error& error) noexcept {
  end_await();
  return error;
}

bool ControlRecord::cancel() noexcept {
  return calls_ != nullptr && calls_->end(*this, Error{Code::kCancelled, operation_});
}

void ControlRecord::forget() noexcept {
  end_await();
  (void)cancel();
}

void ControlRecord::end_await() noexcept {
  if (awaited_in_ != nullptr) std::exchange(awaited_in_, nullptr)->end_await();
}

bool ControlRecord::claim() noexcept { return calls_->claim(*this); }

/// Hands the record to the thread that reports the end of the call. On return the record may be
/// destroyed, unless the caller has a reference.
void ControlRecord::finish() noexcept {
  REMORA_ASSERT(self_ == nullptr, "a control call ends once");
  self_ = shared_from_this();
  if (!held_) {
    // Releases the engine now: the application's loop, or the executor, may run much later.
    const std::shared_ptr<EngineServices> engine = std::move(engine_);
    const std::shared_ptr<CoroutineInbox> inbox = std::move(inbox_);
    if (inbox != nullptr)
      inbox->post(*this);
    else
      options_.resume.post_(options_.resume.context_, Resumption{*this});
    return;
  }
  if (poller_ != nullptr) return poller_->post(*this);
  // prepare() has started the arena.
  if (auto arena = engine_->arena()) return (*arena)->post(*this);
  told(*this);
}

void ControlRecord::told(Resumable& self) noexcept {
  auto& record = static_cast<ControlRecord&>(self);
  std::shared_ptr<ControlRecord> kept = std::move(record.self_);
  const std::shared_ptr<ControlCalls> calls = record.calls_;
  const bool held = record.held_;
  record.end_await();
  {
    const ControlCalls::Telling telling;
    record.tell();
  }
  record.engine_ = nullptr;
  kept = nullptr;
  if (held) calls->was_told();
}

void control_callback_threw(const char* what) noexcept {
  log::warn({"callback.threw", "reason"}, "a callback of a control call threw: {}", what);
}

}  // namespace remora::detail
