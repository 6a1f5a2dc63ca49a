#include <algorithm>

#include <remora/verbs/memory_window.h>
#include <remora/verbs/teardown.h>

#include "errors.h"
#include "window_set.h"

namespace remora::verbs {
namespace detail {

Status WindowRecord::free() noexcept {
  if (domain.device().foreign()) return {};  // of a parent process: not touched
  const remora::detail::MutexLock lock{mutex_};
  ibv_mw* const mine = std::exchange(window_, nullptr);
  if (mine == nullptr) return {};
  const int result = domain.device().provider().dealloc_mw(mine);
  if (result == 0) return {};
  const Error failed = provider_error("ibv_dealloc_mw", errno_of(result));
  report_teardown_failure(failed);
  return failed;
}

ibv_mw* WindowRecord::get() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  return window_;
}

void WindowSet::add(const std::shared_ptr<WindowRecord>& record) {
  const remora::detail::MutexLock lock{mutex_};
  records_.push_back(record);
  if (records_.size() < sweep_at_) return;
  // Rare enough that a registration with many windows does not pay more for each of them. Removes
  // records of windows that are freed, and duplicates of those that were bound again.
  const auto same = [](const auto& a, const auto& b) {
    return !a.owner_before(b) && !b.owner_before(a);
  };
  std::erase_if(records_, [](const auto& weak) { return weak.expired(); });
  std::sort(records_.begin(), records_.end(), std::owner_less<std::weak_ptr<WindowRecord>>{});
  records_.erase(std::unique(records_.begin(), records_.end(), same), records_.end());
  sweep_at_ = std::max(kSweepLeast, 2 * records_.size());
}

void WindowSet::free_all() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  for (const auto& weak : records_)
    if (const auto record = weak.lock()) (void)record->free();
  records_.clear();
}

}  // namespace detail

MemoryWindow::MemoryWindow(std::shared_ptr<detail::WindowRecord> record) noexcept
    : record_{std::move(record)}, rkey_{record_->get()->rkey} {}
MemoryWindow::MemoryWindow(MemoryWindow&&) noexcept = default;
MemoryWindow& MemoryWindow::operator=(MemoryWindow&& other) noexcept {
  if (this == &other) return *this;
  (void)free();
  record_ = std::move(other.record_);
  rkey_ = other.rkey_;
  address_ = other.address_;
  length_bytes_ = other.length_bytes_;
  return *this;
}
MemoryWindow::~MemoryWindow() { (void)free(); }

Status MemoryWindow::free() noexcept { return record_ ? record_->free() : Status{}; }

bool MemoryWindow::freed() const noexcept { return raw() == nullptr; }
ibv_mw* MemoryWindow::raw() const noexcept { return record_ ? record_->get() : nullptr; }

Status MemoryWindow::bind(const ibv_qp* pair, const MemoryRegion& region,
                          std::uint64_t offset_bytes, std::uint64_t length_bytes, Access rights,
                          ibv_send_wr& wr) {
  constexpr Operation kOperation = "Batch::bind_window";
  ibv_mw* const window = raw();
  if (window == nullptr) return Error{Code::kClosed, kOperation};
  if (record_->pair != pair || region.mr_.get_deleter().windows == nullptr)
    return Error{Code::kInvalidArgument, kOperation};
  const std::uint64_t whole = region.length_bytes();
  if (offset_bytes > whole || length_bytes > whole - offset_bytes)
    return Error{Code::kOutOfRange, kOperation}.with_limit(
        length_bytes, offset_bytes > whole ? 0 : whole - offset_bytes);
  region.mr_.get_deleter().windows->add(record_);
  // Type 2: the library chooses the key's low byte, a new one with every bind.
  rkey_ = ibv_inc_rkey(rkey_);
  address_ = contains(rights, Access::kZeroBased) ? 0 : region.address() + offset_bytes;
  length_bytes_ = length_bytes;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = rkey_;
  wr.bind_mw.bind_info.mr = region.raw();
  wr.bind_mw.bind_info.addr = region.address() + offset_bytes;
  wr.bind_mw.bind_info.length = length_bytes;
  wr.bind_mw.bind_info.mw_access_flags = bits(rights);
  return {};
}

Status MemoryWindow::invalidate(const ibv_qp* pair, ibv_send_wr& wr) const {
  constexpr Operation kOperation = "Batch::invalidate";
  if (freed()) return Error{Code::kClosed, kOperation};
  if (record_->pair != pair) return Error{Code::kInvalidArgument, kOperation};
  wr.invalidate_rkey = rkey_;
  return {};
}

}  // namespace remora::verbs
