#include "transport/rdma/completion_vector.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>

#include <remora/mutex.h>
#include <remora/owned.h>

namespace remora::transport::rdma {

namespace {

/// The number of processors on the device's memory node; 0: the kernel does not report it.
std::uint32_t near_processors(const verbs::Device& device) {
  std::ifstream file{"/sys/class/infiniband/" + std::string{device.name()} +
                     "/device/local_cpulist"};
  std::string near;
  return std::getline(file, near) ? count_processors(near) : 0;
}

}  // namespace

std::uint32_t count_processors(std::string_view list) noexcept {
  std::uint32_t count = 0;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    std::uint32_t first = 0;
    const auto begun = std::from_chars(at, end, first);
    if (begun.ec != std::errc{}) return 0;
    std::uint32_t last = first;
    at = begun.ptr;
    if (at != end && *at == '-') {
      const auto ended = std::from_chars(at + 1, end, last);
      if (ended.ec != std::errc{} || last < first) return 0;
      at = ended.ptr;
    }
    count += last - first + 1;
    if (at != end && *at++ != ',') return 0;
  }
  return count;
}

int next_completion_vector(const verbs::Device& device) {
  struct Turns {
    std::uint32_t near = 0;
    std::uint32_t next = 0;
  };
  struct Known {
    remora::detail::Mutex mutex;
    std::map<std::string, Turns, std::less<>> devices REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Known> process;
  Known& known = process.get();
  const remora::detail::MutexLock lock{known.mutex};
  auto found = known.devices.find(device.name());
  if (found == known.devices.end())
    found = known.devices.emplace(std::string{device.name()}, Turns{near_processors(device)}).first;
  Turns& turns = found->second;
  // A device that has returned under this name may have another number of vectors.
  const std::uint32_t all = std::max(1U, device.completion_vector_count());
  const std::uint32_t usable = turns.near == 0 ? all : std::min(all, turns.near);
  return static_cast<int>(turns.next++ % usable);
}

}  // namespace remora::transport::rdma
