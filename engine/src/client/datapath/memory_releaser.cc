#include "client/datapath/memory_releaser.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

namespace remora::detail {

namespace {

/// How often the releaser sweeps while released memory is in use.
constexpr std::chrono::milliseconds kLook{2};

/// Destroys a list whose nodes own each other, without recursion.
void deregister_all(std::unique_ptr<LocalMemory> first) noexcept {
  while (first != nullptr) first = first->take_next();
}

}  // namespace

MemoryReleaser::~MemoryReleaser() { deregister_all(std::move(released_)); }

std::shared_ptr<LocalMemory> MemoryReleaser::handle(std::span<std::byte> bytes) {
  auto memory = std::make_unique<LocalMemory>(bytes, LocalMemory::Handles::kCopied);
  return std::shared_ptr<LocalMemory>{
      memory.release(), [self = shared_from_this()](LocalMemory* each) { self->release(each); }};
}

Status MemoryReleaser::watch(EventLoop& loop) {
  const MutexLock lock{mutex_};
  if (loop_ != nullptr) return {};
  if (Status opened = timer_.open(); !opened) return opened;
  auto watch = loop.watch(timer_.get(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->timer_.take();
    self->sweep();
  });
  if (!watch) return watch.error();
  loop_ = &loop;
  watch_ = *watch;
  return {};
}

/// The last handle was destroyed.
void MemoryReleaser::release(LocalMemory* memory) noexcept {
  std::unique_ptr<LocalMemory> last{memory};  // deregistered after the lock
  const MutexLock lock{mutex_};
  last->set_released(releases_.fetch_add(1, std::memory_order_relaxed) + 1);
  if (closed_ || !in_use(*last)) return;
  last->put_before(std::move(released_));
  released_ = std::move(last);
  timer_.set(Clock::now() + kLook);
}

bool MemoryReleaser::in_use(const LocalMemory& memory) const noexcept {
  return memory.counted_in_use() ||
         std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table* table) { return table->names(memory); });
}

void MemoryReleaser::sweep() noexcept {
  std::unique_ptr<LocalMemory> unused;
  {
    const MutexLock lock{mutex_};
    std::unique_ptr<LocalMemory> left = std::move(released_);
    std::unique_ptr<LocalMemory> kept;  // in reverse order, which does not matter
    while (left != nullptr) {
      std::unique_ptr<LocalMemory> memory = std::exchange(left, left->take_next());
      std::unique_ptr<LocalMemory>& list = in_use(*memory) ? kept : unused;
      memory->put_before(std::move(list));
      list = std::move(memory);
    }
    released_ = std::move(kept);
    if (released_ != nullptr) timer_.set(Clock::now() + kLook);
  }
  deregister_all(std::move(unused));
}

void MemoryReleaser::close() noexcept {
  std::unique_ptr<LocalMemory> all;
  EventLoop* loop = nullptr;
  EventLoop::Token watch = 0;
  {
    const MutexLock lock{mutex_};
    closed_ = true;
    all = std::move(released_);
    loop = std::exchange(loop_, nullptr);
    watch = watch_;
  }
  if (loop != nullptr) loop->forget(watch);
  deregister_all(std::move(all));
}

MemoryReleaser::Table::Table(std::shared_ptr<MemoryReleaser> releaser, const OperationRecord* first,
                             std::size_t stride_bytes, std::size_t count)
    : first_{first}, stride_bytes_{stride_bytes}, count_{count} {
  if (releaser == nullptr) return;
  const MutexLock lock{releaser->mutex_};
  releaser->tables_.push_back(this);
  releaser_ = std::move(releaser);
}

MemoryReleaser::Table::~Table() {
  if (releaser_ == nullptr) return;
  const MutexLock lock{releaser_->mutex_};
  const std::size_t erased = std::erase(releaser_->tables_, this);
  REMORA_ASSERT(erased == 1, "a table of operations is known from its beginning to its end");
}

bool MemoryReleaser::Table::names(const LocalMemory& memory) const noexcept {
  const auto* at = reinterpret_cast<const std::byte*>(first_);
  for (std::size_t i = 0; i < count_; ++i, at += stride_bytes_)
    if (reinterpret_cast<const OperationRecord*>(at)->names(memory)) return true;
  return false;
}

}  // namespace remora::detail
