#pragma once

/// Control calls that do not block: opening, fencing, reopening, connecting, settled().
///
/// Each function `async_…` of Engine, Session and Region returns an AsyncControl. Nothing happens
/// until it is awaited or given a callback:
///
///   auto region = co_await engine.async_open_region(uri, remora::Rights::kRead);
///
///   auto call = engine.async_open_region(uri, remora::Rights::kRead)
///                   .then([](remora::Result<remora::Region> opened) { ... }).value();
///
/// **Never blocks.** The blocking function, with the resolution of the server's name, runs on a
/// *control thread* of the engine. The engine starts these threads when calls need them,
/// EngineOptions::control_threads at most; an engine without such calls has none. A call for which
/// no thread is free waits in order, and its deadline runs meanwhile. An engine has at most
/// kMaxControlCalls unfinished calls.
///
/// **Ends exactly once**, within its deadline plus two seconds, with the result of the blocking
/// function, or with kTimedOut; kCancelled (ControlCall::cancel(), with_stop()); kClosed (the
/// engine was destroyed meanwhile). The blocking function of a call that was cancelled, has timed
/// out, or whose engine is gone may still run on its thread: a region that it then opens is closed
/// at once, but a fence may have taken effect. Such a thread ends with its attempt, usually at the
/// deadline of the call; if getaddrinfo(3) waits for a name server, when that returns. Until then
/// it counts among the control threads.
///
/// **Where the coroutine continues, or the callback runs**: where ControlOptions::resume says, as
/// for an AsyncQueue: on a poller (the default; needs EngineOptions::pollers), on the arena, or in
/// the application's own loop, for which the library has ResumptionQueue. A coroutine inside
/// Executor::run() continues in that executor's thread, whatever `resume` says. Code on a poller or
/// the arena must not block.
///
/// **Destroying a task that awaits a call** cancels the call; it is safe where the task would
/// continue, as for operations (async.h).
///
/// Thread safety: an AsyncControl has one owner. The functions that return one may be called from
/// any thread, also from handlers and callbacks.

#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <remora/engine/async.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

/// The most unfinished calls of one engine.
inline constexpr std::size_t kMaxControlCalls = 1024;
/// The largest EngineOptions::control_threads.
inline constexpr std::uint32_t kMaxControlThreads = 64;

/// The options of one control call. Trivially copyable: g++ 12 destroys temporaries of other
/// aggregates twice if they are within a co_await expression.
struct ControlOptions {
  /// From the start of the call to its end. Zero: the longest time that the blocking function may
  /// take (EngineOptions::control_deadline, after `connect_for` if that is set; settled() has a
  /// deadline of its own).
  std::chrono::nanoseconds deadline{0};
  /// Where the coroutine continues, or the callback is called.
  Resume resume{};
};
static_assert(std::is_trivially_copyable_v<ControlOptions>);

namespace detail {

class ControlCalls;
class CoroutineInbox;
class EngineServices;
class Poller;

/// The return type of a blocking function, as it was forwarded.
template <typename F>
using ControlResult = std::invoke_result_t<std::decay_t<F>&>;

/// Bounds of a blocking control function.
struct ControlLimits {
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  /// Requests a stop when the result is not needed any more.
  std::stop_token stop{};
};

/// One call, from its start until its end has been reported.
class ControlRecord : public Resumable, public std::enable_shared_from_this<ControlRecord> {
 public:
  /// Sends nothing: start() begins the call.
  ControlRecord(std::shared_ptr<EngineServices> engine, Operation operation,
                const ControlOptions& options);
  virtual ~ControlRecord();
  ControlRecord(const ControlRecord&) = delete;
  ControlRecord& operator=(const ControlRecord&) = delete;

  /// Called before start(): cancels the call when a stop is requested.
  void set_stop(std::stop_token stop) noexcept { stop_ = std::move(stop); }
  /// After success the end may have been reported already. An error: the call has not been started.
  /// `await`: for a coroutine, which an executor of this thread resumes.
  Status start(bool await) noexcept;
  /// False: the call had ended already.
  bool cancel() noexcept;
  /// The coroutine has been destroyed.
  void forget() noexcept;

 protected:
  /// On a control thread: calls the blocking function.
  virtual void work(const ControlLimits& limits) noexcept = 0;
  /// Called by the thread that has claimed the call.
  virtual void set_error(const Error& error) noexcept = 0;
  /// The blocking function will not be called.
  virtual void drop_work() noexcept = 0;
  /// Reports the end, in the thread where the coroutine continues or the callback runs.
  virtual void tell() noexcept = 0;
  /// After work(): true for one caller, which sets the result and calls finish().
  [[nodiscard]] bool claim() noexcept;
  void finish() noexcept;
  [[nodiscard]] static Error threw(const char* what) noexcept;

 private:
  friend class ControlCalls;
  static void told(Resumable& self) noexcept;
  void end_await() noexcept;
  Status prepare(bool await);
  [[nodiscard]] Error not_begun(const Error& error) noexcept;

  std::shared_ptr<EngineServices> engine_;  ///< until its end is passed on, or reported
  std::shared_ptr<ControlCalls> calls_;
  const Operation operation_;
  const ControlOptions options_;
  std::stop_token stop_;
  std::chrono::steady_clock::time_point until_{};
  Poller* poller_ = nullptr;
  std::shared_ptr<CoroutineInbox> inbox_;  ///< of the executor in which the call is awaited
  CoroutineInbox* awaited_in_ = nullptr;   ///< the same, until the end is reported or forgotten
  bool running_ = false;                   ///< on a control thread; with the calls' lock
  bool held_ = false;                      ///< reported where ~Engine waits for it
  bool unwanted_ = false;                  ///< cancelled before it began; with the calls' lock
  std::stop_source abandoned_;
  std::shared_ptr<ControlRecord> self_;  ///< while its end is being passed on
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

/// `R`: a Result or a Status.
template <typename R>
class ControlRecordOf : public ControlRecord {
 public:
  using Blocking = std::function<R(const ControlLimits&)>;
  /// `blocking` is called once, on a control thread, unless the call ends before that.
  ControlRecordOf(std::shared_ptr<EngineServices> engine, Operation operation,
                  const ControlOptions& options, Blocking blocking)
      : ControlRecord{std::move(engine), operation, options}, blocking_{std::move(blocking)} {}

 protected:
  void work(const ControlLimits& limits) noexcept override {
    std::optional<R> made;
    try {
      made.emplace(blocking_(limits));
    } catch (const std::exception& error) {
      made.emplace(threw(error.what()));
    } catch (...) {
      made.emplace(threw("an exception that is no std::exception"));
    }
    blocking_ = nullptr;
    if (!claim()) return;  // a result that was made is destroyed here
    result_.emplace(std::move(*made));
    made.reset();
    finish();
  }
  void set_error(const Error& error) noexcept override { result_.emplace(error); }
  void drop_work() noexcept override { blocking_ = nullptr; }

  std::optional<R> result_;

 private:
  Blocking blocking_;
};

/// A control call that a coroutine awaits.
template <typename R>
class AwaitedControl final : public ControlRecordOf<R> {
 public:
  using ControlRecordOf<R>::ControlRecordOf;
  /// Stores the coroutine that tell() resumes. Called before start().
  void await(std::coroutine_handle<> waiter) noexcept { waiter_.store(waiter.address()); }
  /// The coroutine continues with the result.
  R take() noexcept { return std::move(*this->result_); }
  /// The coroutine is destroyed: its result is dropped, and the call is cancelled.
  void abandon() noexcept {
    waiter_.store(nullptr);
    this->forget();
  }

 protected:
  void tell() noexcept override {
    if (void* const waiter = waiter_.exchange(nullptr); waiter != nullptr)
      std::coroutine_handle<>::from_address(waiter).resume();
  }

 private:
  std::atomic<void*> waiter_{nullptr};  ///< null: no coroutine waits
};

/// A control call that ends in a callback.
template <typename R, typename F>
class CalledBackControl final : public ControlRecordOf<R> {
 public:
  /// Takes `callback`, which is called once or, if start() fails, not at all.
  CalledBackControl(std::shared_ptr<EngineServices> engine, Operation operation,
                    const ControlOptions& options, typename ControlRecordOf<R>::Blocking blocking,
                    F&& callback)
      : ControlRecordOf<R>{std::move(engine), operation, options, std::move(blocking)},
        callback_{std::forward<F>(callback)} {}

 protected:
  void tell() noexcept override {
    // Its captures are destroyed in the thread that calls it.
    auto callback = std::move(*callback_);
    callback_.reset();
    report([&] { callback(std::move(*this->result_)); });
    this->result_.reset();
  }

 private:
  template <typename Call>
  static void report(const Call& call) noexcept;
  std::optional<std::decay_t<F>> callback_;
};

/// Logs an exception that has left a callback.
void control_callback_threw(const char* what) noexcept;

template <typename R, typename F>
template <typename Call>
void CalledBackControl<R, F>::report(const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    control_callback_threw(error.what());
  } catch (...) {
    control_callback_threw("an exception that is no std::exception");
  }
}

}  // namespace detail

/// A call that was started with a callback. Copyable handle, thread-safe; destroying it changes
/// nothing for the call.
class ControlCall {
 public:
  /// An empty handle, which stands for no call.
  ControlCall() noexcept = default;
  /// For AsyncControl::then().
  explicit ControlCall(std::shared_ptr<detail::ControlRecord> record) noexcept
      : record_{std::move(record)} {}
  /// Ends the call with kCancelled, which its callback gets as it gets any end. Never blocks.
  /// False: the call had ended already, or this handle is empty.
  bool cancel() const noexcept { return record_ != nullptr && record_->cancel(); }

 private:
  detail::OwnedShared<detail::ControlRecord> record_;
};

/// A control call that has not begun: either `co_await` it, or give it a callback by then(), once.
/// `R` is a Result or a Status. Move-only until then.
///
/// Errors beside those of the blocking function: see the top of this file, and, without beginning a
/// call: kClosed (the engine is gone, or the handle was moved from); kWouldBlock
/// (kMaxControlCalls); kSystem (the first control thread or a poller could not be started);
/// kUnsupported (EngineOptions::pollers is 0, and the call continues on a poller); kInvalidArgument
/// (EngineOptions::control_threads is 0); kOutOfMemory.
template <typename R>
class [[nodiscard]] AsyncControl {
 public:
  using Blocking = typename detail::ControlRecordOf<R>::Blocking;
  /// For Remora's own functions: Engine::async_control() makes a call of any function.
  AsyncControl(std::shared_ptr<detail::EngineServices> engine, Operation operation,
               const ControlOptions& options, Blocking blocking)
      : engine_{std::move(engine)},
        operation_{operation},
        options_{options},
        blocking_{std::move(blocking)} {}
  /// Ends at once, in the thread that awaits it.
  explicit AsyncControl(const Error& error) : early_{error} {}
  /// Cancels the call if a coroutine awaits it.
  ~AsyncControl() {
    if (record_ != nullptr) record_->abandon();
  }
  AsyncControl(AsyncControl&&) noexcept = default;
  AsyncControl& operator=(AsyncControl&&) = delete;

  /// The same call, which ends with kCancelled when a stop is requested of `stop`.
  AsyncControl with_stop(std::stop_token stop) && noexcept {
    stop_ = std::move(stop);
    return std::move(*this);
  }

  /// Starts the call; `callback`, a `void(R)`, is called exactly once. An error: the call was not
  /// started, and `callback` will not be called. An exception that leaves the callback is caught
  /// and logged.
  template <typename F, typename Callback = std::decay_t<F>>
  requires std::invocable<Callback&, R> Result<ControlCall> then(F&& callback)
  noexcept {
    if (early_) return *early_;
    if (engine_ == nullptr) return detail::closed_handle(operation_, engine_.foreign());
    try {
      auto record = std::make_shared<detail::CalledBackControl<R, F>>(
          std::exchange(engine_, nullptr).pointer(), operation_, options_, std::move(blocking_),
          std::forward<F>(callback));
      record->set_stop(std::move(stop_));
      if (const Status started = record->start(false); !started) return started.error();
      return ControlCall{std::move(record)};
    } catch (const std::bad_alloc&) {
      return Error{Code::kOutOfMemory, operation_};
    }
  }

  /// True: the call was refused when it was made.
  [[nodiscard]] bool await_ready() const noexcept { return early_.has_value(); }
  /// Starts the call. False: it was not started, and await_resume() returns the error.
  bool await_suspend(std::coroutine_handle<> waiter) noexcept {
    if (engine_ == nullptr) {
      early_ = detail::closed_handle(operation_, engine_.foreign());
      return false;
    }
    try {
      record_ = std::make_shared<detail::AwaitedControl<R>>(
          std::exchange(engine_, nullptr).pointer(), operation_, options_, std::move(blocking_));
    } catch (const std::bad_alloc&) {
      early_.emplace(Code::kOutOfMemory, operation_);
      return false;
    }
    // Once the call has started, this object may be destroyed.
    const std::shared_ptr<detail::AwaitedControl<R>> record = record_.pointer();
    record->set_stop(std::move(stop_));
    record->await(waiter);
    const Status started = record->start(true);
    if (started) return true;
    early_ = started.error();
    record_ = nullptr;
    return false;
  }
  /// The result of the blocking function. Errors: see the class.
  R await_resume() noexcept {
    if (early_) return *early_;
    return std::exchange(record_, nullptr)->take();
  }

 private:
  detail::OwnedShared<detail::EngineServices> engine_;
  Operation operation_;
  ControlOptions options_;
  std::stop_token stop_;
  Blocking blocking_;
  std::optional<Error> early_;
  detail::OwnedShared<detail::AwaitedControl<R>> record_;
};

/// Passes ends of operations and control calls to the application's own event loop.
///
///   auto ends = remora::ResumptionQueue::create().value();
///   auto queue = region.async_queue({.depth = 64}, ends.resume()).value();
///   co_await engine.async_open_region(uri, rights, {.resume = ends.resume()});
///   ends.progress();  // when ends.event_fd() is readable
///
/// Thread safety: one thread at a time calls progress(); in it coroutines continue and callbacks
/// run. It must outlive the queues and calls that resume here, as Resume says; the destructor
/// resumes the coroutines that have not continued yet. A moved-from queue does nothing; its
/// event_fd() is -1, and its resume() is on a poller.
class ResumptionQueue {
 public:
  /// Errors: kSystem (no descriptor), kOutOfMemory.
  static Result<ResumptionQueue> create() noexcept;
  ~ResumptionQueue();
  ResumptionQueue(ResumptionQueue&&) noexcept;
  /// Resumes the coroutines of the queue that this object had, as the destructor does.
  ResumptionQueue& operator=(ResumptionQueue&&) noexcept;

  /// For AsyncQueues and ControlOptions. Valid while this object, or the one that it was moved to,
  /// lives.
  [[nodiscard]] Resume resume() const noexcept;
  /// Readable when progress() has a coroutine or a callback to continue. Borrowed.
  [[nodiscard]] int event_fd() const noexcept;
  /// Continues, in this thread, all coroutines and callbacks that have arrived, and arms event_fd()
  /// for the next one; returns their number. Never waits.
  std::size_t progress() noexcept;

 private:
  explicit ResumptionQueue(std::shared_ptr<detail::CoroutineInbox> inbox) noexcept;
  std::shared_ptr<detail::CoroutineInbox> inbox_;
};

}  // namespace remora
