#include "cm_device.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include <remora/mutex.h>
#include <remora/owned.h>

#include "errors.h"

namespace remora::verbs::detail {
namespace {

struct Entry {
  std::shared_ptr<CmDevice> device;
  ibv_context* context;
  const Provider* provider;
};
struct Known {
  remora::detail::Mutex mutex;
  std::vector<Entry> devices REMORA_GUARDED_BY(mutex);
};
Known& known_devices() {
  static remora::detail::PerProcess<Known> known;
  return known.get();
}

/// The devices of the host now; nothing where the kernel does not tell.
std::vector<ibv_device*> present(const Provider& provider) {
  int count = 0;
  ibv_device** const list = provider.get_device_list(&count);
  if (list == nullptr) return {};
  std::vector<ibv_device*> devices{list, list + count};
  provider.free_device_list(list);
  return devices;
}

/// librdmacm compares its list of devices with the host's.
bool compare_lists(const Provider& provider) {
  int count = 0;
  ibv_context** const list = provider.get_cm_devices(&count);
  if (list != nullptr) provider.free_cm_devices(list);
  return list != nullptr;
}

}  // namespace

CmDevice::~CmDevice() {
  if (provider_.foreign()) return;
  const Provider& provider = *provider_;
  // It does so only where there is a device.
  const bool none_left = gone() && !compare_lists(provider) && present(provider).empty();
  provider.release_cm_device(context_, none_left);
}

Result<std::shared_ptr<CmDevice>> CmDevice::of(const Provider& provider, ibv_context* context) {
  Known& known = known_devices();
  const remora::detail::MutexLock lock{known.mutex};
  const auto find = [&](ibv_context* wanted) -> std::shared_ptr<CmDevice> {
    known.mutex.assert_held();
    for (const Entry& entry : known.devices)
      if (entry.context == wanted && entry.provider == &provider) return entry.device;
    return nullptr;
  };
  if (auto found = find(context)) return found;
  errno = 0;
  int count = 0;
  ibv_context** const list = provider.get_cm_devices(&count);
  if (list == nullptr) return provider_error("rdma_get_devices", errno_of(-1));
  for (ibv_context* const each : std::span{list, static_cast<std::size_t>(count)}) {
    if (find(each) != nullptr)
      provider.release_cm_device(each, false);  // one reference each
    else
      known.devices.push_back({std::make_shared<CmDevice>(provider, each), each, &provider});
  }
  provider.keep_cm_devices(list);
  return find(context);
}

void CmDevice::look(const Provider& provider) {
  Known& known = known_devices();
  const remora::detail::MutexLock lock{known.mutex};
  if (known.devices.empty()) return;
  const std::vector<ibv_device*> here = present(provider);
  for (const Entry& entry : known.devices)
    if (entry.provider == &provider &&
        std::find(here.begin(), here.end(), entry.device->device_) == here.end())
      entry.device->gone_.store(true, std::memory_order_release);
  // Those without another user go here, the others with their last user.
  std::erase_if(known.devices, [](const Entry& entry) { return entry.device->gone(); });
}

void CmDevice::mark_gone() noexcept {
  gone_.store(true, std::memory_order_release);
  Known& known = known_devices();
  std::shared_ptr<CmDevice> self;  // outlives the lock
  const remora::detail::MutexLock lock{known.mutex};
  std::erase_if(known.devices, [&](Entry& entry) {
    if (entry.device.get() != this) return false;
    self = std::move(entry.device);
    return true;
  });
}

}  // namespace remora::verbs::detail
