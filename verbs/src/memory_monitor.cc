#include "memory_monitor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <remora/assert.h>
#include <remora/standard_descriptors.h>
#include <remora/start_thread.h>

#include "mapping_kind.h"
#include "memory_monitor_proof.h"
#include "reader_epoch.h"

namespace remora::verbs::detail {
namespace {

// For this time after a MADV_DONTNEED, overlapping memory is not kept registered: between the
// report and the removal of the pages the kernel shows no change.
constexpr std::int64_t kRemovalNs = 100'000'000;

// Watched ranges begin and end at multiples of a huge page, within their mapping.
constexpr std::uintptr_t kWatchBytes = std::uintptr_t{2} << 20U;

remora::detail::Mutex g_monitor_mutex;
// A fork waits for g_monitor_mutex.
std::weak_ptr<MemoryMonitor> g_monitor REMORA_GUARDED_BY(g_monitor_mutex);
// A list: a monitor that is ending may exist beside that of g_monitor.
MemoryMonitor* g_first_monitor REMORA_GUARDED_BY(g_monitor_mutex) = nullptr;

std::int64_t monitor_now_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

int open_userfault(std::string& why) {
  int number = MemoryMonitor::refuse_errno.exchange(0);
  int userfault = -1;
  if (number == 0) {
    userfault = remora::detail::above_standard(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
    number = errno;
  }
  if (userfault < 0) {
    why = std::string{"userfaultfd: "} + std::strerror(number);
    if (number == EPERM) why += " (a container's seccomp profile?)";
    return -1;
  }
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP |
                 UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE;
  if (::ioctl(userfault, UFFDIO_API, &api) == 0) return userfault;
  why = "userfaultfd: the kernel reports no changes of mappings";
  ::close(userfault);
  return -1;
}

bool overlap(std::uintptr_t begin, std::uintptr_t end,
             const std::atomic<std::uintptr_t>& other_begin,
             const std::atomic<std::uintptr_t>& other_end) noexcept {
  return begin < other_end.load() && other_begin.load() < end;
}

void signal_event(int event) noexcept {
  const std::uint64_t one = 1;
  // The write fails only if the count is at its maximum: then the reader wakes anyway.
  static_cast<void>(!::write(event, &one, sizeof(one)));
}

}  // namespace

std::atomic<void (*)()> MemoryMonitor::before_read{nullptr};
std::atomic<int> MemoryMonitor::refuse_errno{0};

namespace {
void before_fork() noexcept REMORA_ACQUIRE(g_monitor_mutex) { g_monitor_mutex.lock(); }
void after_fork_in_parent() noexcept REMORA_RELEASE(g_monitor_mutex) { g_monitor_mutex.unlock(); }
}  // namespace

void MemoryMonitor::after_fork_in_child() noexcept {
  // The thread that has forked holds the lock: see before_fork().
  g_monitor_mutex.assert_held();
  for (MemoryMonitor* monitor = g_first_monitor; monitor != nullptr; monitor = monitor->next_)
    monitor->close_descriptors();
  g_first_monitor = nullptr;
  g_monitor.reset();
  ReaderEpoch::forget_other_threads();
  g_monitor_mutex.unlock();
}

void follow_forks() noexcept {
  static const bool following = [] {
    return ::pthread_atfork(before_fork, after_fork_in_parent,
                            MemoryMonitor::after_fork_in_child) == 0;
  }();
  static_cast<void>(following);
}

std::shared_ptr<MemoryMonitor> MemoryMonitor::instance(std::string& why) {
  follow_forks();
  std::shared_ptr<MemoryMonitor> monitor;  // before the lock, which its destructor takes
  const remora::detail::MutexLock lock{g_monitor_mutex};
  if (MemoryMonitor::refuse_errno.load() == 0)
    if (auto running = g_monitor.lock()) return running;
  const int userfault = open_userfault(why);
  if (userfault < 0) return nullptr;
  if (!prove_monitoring(userfault, why)) {  // closes it
    return nullptr;
  }
  const int maps = remora::detail::above_standard(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const int stop = remora::detail::above_standard(::eventfd(0, EFD_CLOEXEC));
  const int wake = remora::detail::above_standard(::eventfd(0, EFD_CLOEXEC));
  monitor.reset(new MemoryMonitor{userfault, maps, stop, wake});
  if (maps < 0 || stop < 0 || wake < 0) {
    why = std::string{"/proc/self/maps or eventfd: "} + std::strerror(errno);
    return nullptr;
  }
  if (const Status started = monitor->start(); !started) {
    why = started.error().message();
    return nullptr;
  }
  g_monitor = monitor;
  return monitor;
}

MemoryMonitor::MemoryMonitor(int userfault, int maps, int stop, int wake) noexcept
    : next_{g_first_monitor}, userfault_{userfault}, maps_{maps}, stop_{stop}, wake_{wake} {
  g_first_monitor = this;
}

Status MemoryMonitor::start() {
  // The application's signal handlers must not run on this thread: they may allocate, which this
  // thread must not do.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = remora::detail::start_thread("remora-mapping", [this] { run(); });
  if (thread) thread_ = std::move(*thread);
  auto reaper = remora::detail::start_thread("remora-dereg", [this] { reap_loop(); });
  if (reaper) reaper_ = std::move(*reaper);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread) return thread.error();
  if (!reaper) return reaper.error();
  return {};
}

MemoryMonitor::~MemoryMonitor() {
  stopping_.store(true);
  if (stop_ >= 0) signal_event(stop_);
  if (wake_ >= 0) signal_event(wake_);
  if (thread_.joinable()) thread_.join();
  if (reaper_.joinable()) reaper_.join();
  const remora::detail::MutexLock lock{g_monitor_mutex};
  close_descriptors();
  MemoryMonitor** place = &g_first_monitor;
  while (*place != this) place = &(*place)->next_;
  *place = next_;
}

void MemoryMonitor::close_descriptors() noexcept {
  for (int* const descriptor : {&userfault_, &maps_, &stop_, &wake_})
    if (const int open = std::exchange(*descriptor, -1); open >= 0) ::close(open);
}

void MemoryMonitor::close_userfault() noexcept {
  // A fork must not find it half closed. The thread that holds the lock may be waiting until a
  // change is read, so this thread reads until it has the lock.
  pollfd waited{userfault_, POLLIN, 0};
  while (!g_monitor_mutex.try_lock())
    if (::poll(&waited, 1, 1) == 1) read_changes();
  ::close(std::exchange(userfault_, -1));
  g_monitor_mutex.unlock();
}

bool MemoryMonitor::subscribe(Subscriber& subscriber) {
  const remora::detail::MutexLock lock{subscribing_};
  for (auto& place : subscribers_) {
    Subscriber* none = nullptr;
    if (place.compare_exchange_strong(none, &subscriber)) return true;
  }
  return false;
}

void MemoryMonitor::unsubscribe(Subscriber& subscriber) {
  const remora::detail::MutexLock lock{subscribing_};
  const auto own =
      std::find_if(subscribers_.begin(), subscribers_.end(),
                   [&subscriber](const auto& place) { return place.load() == &subscriber; });
  REMORA_ASSERT(own != subscribers_.end(), "a cache that unsubscribes has subscribed");
  own->store(nullptr);
  const std::uint64_t telling = generation();
  while ((telling & 1U) != 0 && generation() == telling) std::this_thread::yield();
}

bool MemoryMonitor::watch(std::uintptr_t begin, std::uintptr_t end) noexcept {
  // Before watching, so that memory that cannot be watched is left alone; with its bounds, since a
  // watched part of a mapping is a mapping of its own for the kernel, which limits their number.
  std::uintptr_t from = begin & ~(kWatchBytes - 1);
  std::uintptr_t to = (end + kWatchBytes - 1) & ~(kWatchBytes - 1);
  if (!is_private_anonymous(maps_, begin, end, &from, &to)) return false;
  uffdio_register request{};
  request.range = {from, to - from};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  if (::ioctl(userfault_, UFFDIO_REGISTER, &request) != 0) {
    // A neighbouring mapping is watched by another userfaultfd, or has just gone.
    request.range = {begin, end - begin};
    if (::ioctl(userfault_, UFFDIO_REGISTER, &request) != 0) return false;
  }
  // Checked again: from here on the monitor reports a mapping that replaces the one checked before.
  return is_private_anonymous(maps_, begin, end);
}

void MemoryMonitor::wake_reaper() noexcept { signal_event(wake_); }

bool MemoryMonitor::quiet() const noexcept {
  // The kernel refuses an empty range with EINVAL, after the check whether a change waits (EAGAIN).
  // The proof at the start has seen both. Not ioctl(): sanitizers would read the argument.
  uffdio_writeprotect nothing{};
  return ::syscall(SYS_ioctl, userfault_, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EINVAL;
}

bool MemoryMonitor::changed_since(std::uint64_t since, std::uintptr_t begin,
                                  std::uintptr_t end) const noexcept {
  std::size_t later = 0;
  for (const Recent& recent : recent_) {
    if (recent.generation.load() <= since) continue;
    ++later;
    if (overlap(begin, end, recent.begin, recent.end)) return true;
  }
  return later == kRecentMax;  // earlier ones may have been overwritten
}

bool MemoryMonitor::being_removed(std::uintptr_t begin, std::uintptr_t end) const noexcept {
  const std::int64_t young = monitor_now_ns() - kRemovalNs;
  if (all_removed_ns_.load() > young) return true;
  for (const Removal& removal : removals_)
    if (removal.at_ns.load() > young && overlap(begin, end, removal.begin, removal.end))
      return true;
  return false;
}

void MemoryMonitor::remember(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept {
  Recent& recent = recent_[recent_count_++ % kRecentMax];
  recent.generation.store(generation());
  recent.begin.store(begin);
  recent.end.store(end);
  if (how != MappingChange::kRemove) return;
  Removal& removal = removals_[removal_count_++ % kRemovalsMax];
  const std::int64_t now = monitor_now_ns();
  if (removal.at_ns.load() > now - kRemovalNs) all_removed_ns_.store(now);
  removal.begin.store(begin);
  removal.end.store(end);
  removal.at_ns.store(now);
}

void MemoryMonitor::tell(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept {
  remember(begin, end, how);
  for (auto& place : subscribers_)
    if (Subscriber* const subscriber = place.load()) subscriber->changed(begin, end, how);
}

bool MemoryMonitor::read_changes() noexcept {
  std::array<uffd_msg, 16> messages;
  generation_.fetch_add(1);
  const ssize_t length = ::read(userfault_, messages.data(), sizeof(messages));
  const std::size_t count =
      length > 0 ? static_cast<std::size_t>(length) / sizeof(uffd_msg) : std::size_t{0};
  for (std::size_t i = 0; i < count; ++i) {
    const uffd_msg& message = messages[i];
    if (message.event == UFFD_EVENT_UNMAP)
      tell(message.arg.remove.start, message.arg.remove.end, MappingChange::kUnmap);
    if (message.event == UFFD_EVENT_REMOVE)
      tell(message.arg.remove.start, message.arg.remove.end, MappingChange::kRemove);
    if (message.event != UFFD_EVENT_REMAP) continue;
    const auto& remap = message.arg.remap;
    tell(remap.from, remap.from + remap.len, MappingChange::kRemap);
    tell(remap.to, remap.to + remap.len, MappingChange::kRemap);
  }
  generation_.fetch_add(1);
  return count != 0;
}

void MemoryMonitor::run() noexcept {
  std::array<pollfd, 2> waited{{{userfault_, POLLIN, 0}, {stop_, POLLIN, 0}}};
  while (!stopping_.load()) {
    ::poll(waited.data(), waited.size(), -1);
    if ((waited[0].revents & POLLIN) == 0) continue;
    if (auto* const hook = before_read.load()) hook();
    if (read_changes()) signal_event(wake_);
  }
  // On this thread: memory that it frees as it ends may be watched, and then no thread would read
  // the report.
  close_userfault();
}

void MemoryMonitor::reap_loop() noexcept {
  std::uint64_t count = 0;
  while (::read(wake_, &count, sizeof(count)) > 0 && !stopping_.load()) {
    const remora::detail::MutexLock lock{subscribing_};
    for (auto& place : subscribers_)
      if (Subscriber* const subscriber = place.load()) subscriber->reap();
  }
}

}  // namespace remora::verbs::detail
