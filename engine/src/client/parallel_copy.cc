#include "client/parallel_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <utility>

namespace remora::detail {

namespace {
/// A piece that one task copies: long against the cost of a task, short against a transfer.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;
}  // namespace

struct ParallelCopy::Arena {
  /// Workers are the process's, not ours: each is bound when it comes to the arena, and as it was
  /// when it leaves.
  class Binder final : public tbb::task_scheduler_observer {
   public:
    Binder(tbb::task_arena& arena, const Placement& placement)
        : task_scheduler_observer{arena}, placement_{placement} {
      if (!placement_.processors().empty()) observe(true);
    }
    ~Binder() override { observe(false); }
    Binder(const Binder&) = delete;
    Binder& operator=(const Binder&) = delete;
    void on_scheduler_entry(bool is_worker) override {
      if (is_worker) before() = placement_.borrow_thread();
    }
    void on_scheduler_exit(bool is_worker) override {
      if (is_worker) placement_.release_thread(std::exchange(before(), {}));
    }

   private:
    /// A worker is in one arena at a time.
    static ThreadBinding& before() {
      static thread_local ThreadBinding binding;
      return binding;
    }
    Placement placement_;
  };

  Arena(int threads, const Placement& placement) : tasks{threads, 1}, binder{tasks, placement} {}
  tbb::task_arena tasks;
  Binder binder;
};

ParallelCopy::ParallelCopy(std::size_t threads, const Placement& placement) {
  if (threads > 1) arena_ = std::make_unique<Arena>(static_cast<int>(threads), placement);
}

ParallelCopy::~ParallelCopy() = default;

void ParallelCopy::for_each(std::size_t count,
                            const std::function<void(std::size_t)>& one) noexcept {
  if (arena_ == nullptr) {
    for (std::size_t i = 0; i < count; ++i) one(i);
    return;
  }
  // What the library may throw here is that memory for its tasks ran out: nothing to go on with.
  arena_->tasks.execute([&] {
    tbb::parallel_for(std::size_t{0}, count, std::size_t{1}, one, tbb::simple_partitioner{});
  });
}

void ParallelCopy::copy(std::byte* to, const std::byte* from, std::size_t length_bytes) noexcept {
  if (!worth_it(length_bytes)) {
    std::memcpy(to, from, length_bytes);
    return;
  }
  const auto one = [=](std::size_t piece) {
    const std::size_t at = piece * kPieceBytes;
    std::memcpy(to + at, from + at, std::min(kPieceBytes, length_bytes - at));
  };
  for_each((length_bytes + kPieceBytes - 1) / kPieceBytes, std::ref(one));
}

}  // namespace remora::detail
