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

/// Vectors that may be used; at least one. Where the kernel does not say which processors are near,
/// all are.
std::uint32_t usable_vectors(const verbs::Device& device) {
  const std::uint32_t all = std::max(1U, device.completion_vector_count());
  std::ifstream file{"/sys/class/infiniband/" + std::string{device.name()} +
                     "/device/local_cpulist"};
  std::string near;
  if (!std::getline(file, near)) return all;
  const std::uint32_t count = count_processors(near);
  return count == 0 ? all : std::min(all, count);
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
    std::uint32_t usable = 1;
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
    found = known.devices.emplace(std::string{device.name()}, Turns{usable_vectors(device)}).first;
  Turns& turns = found->second;
  // A device of that name may have come back with fewer.
  const std::uint32_t usable =
      std::min(turns.usable, std::max(1U, device.completion_vector_count()));
  return static_cast<int>(turns.next++ % usable);
}

}  // namespace remora::transport::rdma
