#include "client/datapath/helper_threads.h"

#include <algorithm>
#include <exception>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {
namespace {

/// Time until the next attempt after the system has refused a thread.
constexpr std::chrono::seconds kStartPause{10};

}  // namespace

struct HelperThreads::Tasks {
  explicit Tasks(unsigned places) : arena{static_cast<int>(places), places} {}
  tbb::task_arena arena;
};

struct HelperThreads::Call {
  tbb::task_group* group = nullptr;
  std::size_t inside = 0;  ///< number of helpers that use the group
  bool over = false;       ///< no work is left for helpers
};

HelperThreads::HelperThreads(std::size_t helpers, const Placement& placement)
    : helpers_max_{helpers},
      placement_{placement},
      tasks_{std::make_unique<Tasks>(static_cast<unsigned>(helpers + kMaxCallers))} {}

HelperThreads::~HelperThreads() {
  {
    const MutexLock lock{mutex_};
    REMORA_ASSERT(callers_ == 0, "no copy is under way when its helpers end");
    stop_ = true;
  }
  called_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void HelperThreads::start_helpers() noexcept {
  if (helpers_.size() == helpers_max_) return;
  const Deadline now = Clock::now();
  if (now < start_from_) return;
  try {
    helpers_.reserve(helpers_max_);
  } catch (const std::exception&) {
    return;
  }
  while (helpers_.size() < helpers_max_) {
    auto helper = start_thread("remora-copy", [this] { help(); });
    if (!helper) {
      start_from_ = now + kStartPause;
      return log::warn({"client.threads_missing", "threads wanted reason"},
                       "{} of {} threads help to copy: {}", helpers_.size(), helpers_max_,
                       helper.error().message());
    }
    helpers_.push_back(std::move(*helper));
  }
}

bool HelperThreads::enter(Call& call) noexcept {
  const MutexLock lock{mutex_};
  if (callers_ == kMaxCallers) return false;
  start_helpers();
  if (helpers_.empty()) return false;
  ++callers_;
  const auto free = std::find(calls_.begin(), calls_.end(), nullptr);
  REMORA_ASSERT(free != calls_.end(), "there is a place for each caller");
  *free = &call;
  return true;
}

void HelperThreads::leave(Call& call) noexcept {
  MutexLock lock{mutex_};
  const auto entered = std::find(calls_.begin(), calls_.end(), &call);
  REMORA_ASSERT(entered != calls_.end(), "a call that has entered leaves once");
  *entered = nullptr;
  left_.wait(lock, [&call] { return call.inside == 0; });
  --callers_;
}

/// A call that helpers may join, or null.
HelperThreads::Call* HelperThreads::open_call() const noexcept {
  const auto found = std::find_if(calls_.begin(), calls_.end(), [](const Call* call) {
    return call != nullptr && call->group != nullptr && !call->over;
  });
  return found == calls_.end() ? nullptr : *found;
}

void HelperThreads::help() noexcept {
  (void)placement_.bind_thread();
  MutexLock lock{mutex_};
  while (true) {
    Call* call = nullptr;
    called_.wait(lock, [&] {
      mutex_.assert_held();
      return stop_ || (call = open_call()) != nullptr;
    });
    if (stop_) return;
    ++call->inside;
    lock.unlock();
    try {
      // Takes tasks of this group, and of other calls, until the group has none.
      tasks_->arena.execute([call] { call->group->wait(); });
    } catch (const std::exception&) {  // out of memory for entering the arena
    }
    lock.lock();
    call->over = true;
    --call->inside;
    left_.notify_all();
  }
}

/// Registers a call while helpers may join it. The destructor waits until all of them have left.
class HelperThreads::Presence {
 public:
  Presence(HelperThreads& owner, Call& call) noexcept
      : owner_{owner}, call_{call}, entered_{owner.enter(call)} {}
  ~Presence() {
    if (entered_) owner_.leave(call_);
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  [[nodiscard]] bool entered() const noexcept { return entered_; }
  void open(tbb::task_group& group) noexcept {
    {
      const MutexLock lock{owner_.mutex_};
      call_.group = &group;
    }
    owner_.called_.notify_all();
  }

 private:
  HelperThreads& owner_;
  Call& call_;
  const bool entered_;
};

void HelperThreads::for_each(std::size_t count,
                             const std::function<void(std::size_t)>& one) noexcept {
  // oneTBB orders the tasks after the caller's writes, and the caller's reads after the tasks.
  // Since oneTBB is not built with ThreadSanitizer, these atomics show it the same order.
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  next.store(0, std::memory_order_release);
  // A task takes the next index rather than its own one, so that all indices are done even if
  // oneTBB drops a task.
  const auto step = [&] {
    const std::size_t i = next.fetch_add(1, std::memory_order_acq_rel);
    if (i >= count) return false;
    one(i);
    done.fetch_add(1, std::memory_order_release);
    return true;
  };
  const auto share = [&] {
    try {
      tbb::parallel_for(
          std::size_t{0}, count, std::size_t{1}, [&](std::size_t) { step(); },
          tbb::simple_partitioner{});
    } catch (const std::exception&) {  // out of memory: the tasks that began have ended
    }
  };
  if (count > 1) try {
      tbb::task_group group;
      Call call;
      Presence presence{*this, call};
      if (presence.entered())
        tasks_->arena.execute([&] {
          group.run_and_wait([&] {
            presence.open(group);
            share();
          });
        });
    } catch (const std::exception&) {  // out of memory at the beginning
    }
  while (step()) {
  }
  (void)done.load(std::memory_order_acquire);
}

}  // namespace remora::detail
