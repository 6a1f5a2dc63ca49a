#include "device_thread.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <rdma/rdma_cma.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/mutex.h>
#include <remora/owned.h>
#include <remora/start_thread.h>

namespace remora::verbs::detail {
namespace {

struct DeviceJob {
  void (*call)(void*);
  void* argument;
  int number;  ///< errno
  bool done = false;
};

/// Lives as long as the process, as librdmacm's list does.
class DeviceThread {
 public:
  static DeviceThread& of_process() {
    static remora::detail::PerProcess<DeviceThread> all;
    return all.get();
  }
  /// False: the caller runs the job itself.
  bool run(DeviceJob& job) noexcept;
  /// Called at the end of the process, or when the library is unloaded.
  void stop() noexcept;

 private:
  bool start() noexcept REMORA_REQUIRES(mutex_);
  void work() noexcept;

  remora::detail::Mutex mutex_;
  remora::detail::Condition more_;
  remora::detail::Condition done_;
  DeviceJob* job_ REMORA_GUARDED_BY(mutex_) = nullptr;
  bool ended_ REMORA_GUARDED_BY(mutex_) = false;
  ino_t network_ REMORA_GUARDED_BY(mutex_) = 0;  ///< namespace of the thread
  std::thread thread_ REMORA_GUARDED_BY(mutex_);
};

bool librdmacm_is_right() noexcept {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(&::rdma_create_id), &found) == 0 ||
      found.dli_fname == nullptr)
    return false;
  const std::unique_ptr<char, void (*)(void*)> path{::realpath(found.dli_fname, nullptr),
                                                    std::free};
  return path != nullptr && sorts_whole_addresses(path.get());
}

/// 0 if /proc does not tell.
ino_t network_of_caller() noexcept {
  struct stat found {};
  return ::stat("/proc/thread-self/ns/net", &found) == 0 ? found.st_ino : 0;
}

struct Stopper {
  Stopper() = default;
  ~Stopper() { DeviceThread::of_process().stop(); }
  Stopper(const Stopper&) = delete;
  Stopper& operator=(const Stopper&) = delete;
};

bool DeviceThread::start() noexcept {
  if (thread_.joinable()) return true;
  if (::access("/sys/class/infiniband", F_OK) != 0) return false;
  auto thread = remora::detail::start_thread("remora-devices", [this] { work(); });
  if (!thread) return false;
  static const Stopper stopper;
  thread_ = std::move(*thread);
  network_ = network_of_caller();
  return true;
}

bool DeviceThread::run(DeviceJob& job) noexcept {
  const ino_t here = network_of_caller();
  remora::detail::MutexLock lock{mutex_};
  if (ended_ || !start() || network_ != here) return false;
  done_.wait(lock, [this] {
    mutex_.assert_held();
    return ended_ || job_ == nullptr;
  });
  if (ended_) return false;
  job_ = &job;
  more_.notify_one();
  done_.wait(lock, [&job] { return job.done; });
  return true;
}

void DeviceThread::work() noexcept {
  remora::detail::MutexLock lock{mutex_};
  while (true) {
    more_.wait(lock, [this] {
      mutex_.assert_held();
      return ended_ || job_ != nullptr;
    });
    if (job_ == nullptr) return;
    DeviceJob& job = *job_;
    lock.unlock();
    errno = job.number;
    job.call(job.argument);
    job.number = errno;
    lock.lock();
    job.done = true;
    job_ = nullptr;
    done_.notify_all();
  }
}

void DeviceThread::stop() noexcept {
  std::thread thread;
  {
    const remora::detail::MutexLock lock{mutex_};
    ended_ = true;
    thread = std::move(thread_);
  }
  more_.notify_all();
  done_.notify_all();
  if (thread.joinable()) thread.join();
}

}  // namespace

bool sorts_whole_addresses(std::string_view file_name) noexcept {
  // librdmacm.so.1.3.44.0: the version of rdma-core follows that of the interface.
  constexpr std::string_view kName = "/librdmacm.so.1.";
  constexpr int kFixedIn = 52;
  const auto at = file_name.rfind(kName);
  if (at == std::string_view::npos) return false;
  std::string_view rest = file_name.substr(at + kName.size());
  const auto dot = rest.find('.');
  if (dot == std::string_view::npos) return false;
  rest.remove_prefix(dot + 1);
  int version = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), version);
  return parsed.ec == std::errc{} && version >= kFixedIn;
}

bool needs_device_thread() noexcept {
  static const bool right = librdmacm_is_right();
  return !right;
}

void run_on_device_thread(void (*call)(void*), void* argument) noexcept {
  DeviceJob job{call, argument, errno};
  if (needs_device_thread() && DeviceThread::of_process().run(job)) {
    errno = job.number;
    return;
  }
  errno = job.number;
  call(argument);
}

}  // namespace remora::verbs::detail
