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

/// The present devices of the host; empty if the kernel does not list them.
std::vector<ibv_device*> present(const Provider& provider) {
  int count = 0;
  ibv_device** const list = provider.get_device_list(&count);
  if (list == nullptr) return {};
  std::vector<ibv_device*> devices{list, list + count};
  provider.free_device_list(list);
  return devices;
}

/// Makes librdmacm compare its list of devices with the host's.
bool compare_lists(const Provider& provider) {
  int count = 0;
  ibv_context** const list = provider.get_cm_devices(&count);
  if (list != nullptr) provider.free_cm_devices(list);
  return list != nullptr;
}

}  // namespace

struct CmDevice::Known {
  struct Entry {
    /// Null: librdmacm has replaced the context, and only its users keep it.
    std::shared_ptr<CmDevice> kept;
    std::weak_ptr<CmDevice> device;
    ibv_context* context;
    const Provider* provider;
  };
  [[nodiscard]] std::shared_ptr<CmDevice> find(const Provider& provider,
                                               const ibv_context* context) const
      REMORA_REQUIRES(mutex);
  /// References the contexts that librdmacm lists, and releases those that it has replaced. False:
  /// there is no list, and errno has the reason.
  bool take_list(const Provider& provider) REMORA_REQUIRES(mutex);

  mutable remora::detail::Mutex mutex;
  std::vector<Entry> entries REMORA_GUARDED_BY(mutex);
};

std::shared_ptr<CmDevice> CmDevice::Known::find(const Provider& provider,
                                                const ibv_context* context) const {
  for (const Entry& entry : entries)
    if (entry.context == context && entry.provider == &provider)
      if (auto alive = entry.device.lock()) return alive;
  return nullptr;
}

bool CmDevice::Known::take_list(const Provider& provider) {
  errno = 0;
  int count = 0;
  ibv_context** const list = provider.get_cm_devices(&count);
  if (list == nullptr) return false;
  const std::span<ibv_context* const> listed{list, static_cast<std::size_t>(count)};
  for (Entry& entry : entries) {
    if (entry.provider != &provider || entry.kept == nullptr) continue;
    const bool is_listed = std::find(listed.begin(), listed.end(), entry.context) != listed.end();
    const ibv_device* const device = entry.kept->device_;
    const bool opened_again =
        std::any_of(listed.begin(), listed.end(),
                    [device](const ibv_context* each) { return each->device == device; });
    if (is_listed || !opened_again) continue;
    entry.kept->replaced_.store(true, std::memory_order_release);
    entry.kept.reset();
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.device.expired(); });
  for (ibv_context* const each : listed) {
    if (find(provider, each) != nullptr) {
      provider.release_cm_device(each, false);  // one reference each
      continue;
    }
    const auto made = std::make_shared<CmDevice>(provider, each);
    entries.push_back({made, made, each, &provider});
  }
  provider.keep_cm_devices(list);
  return true;
}

CmDevice::Known& CmDevice::known_devices() {
  static remora::detail::PerProcess<Known> known;
  return known.get();
}

CmDevice::~CmDevice() {
  if (provider_.foreign()) return;
  const Provider& provider = *provider_;
  // librdmacm does so only if the host has a device.
  const bool none_left = gone() && !compare_lists(provider) && present(provider).empty();
  provider.release_cm_device(context_, none_left);
}

Result<std::shared_ptr<CmDevice>> CmDevice::of(const Provider& provider, ibv_context* context) {
  Known& known = known_devices();
  const remora::detail::MutexLock lock{known.mutex};
  if (auto found = known.find(provider, context)) return found;
  if (!known.take_list(provider)) return provider_error("rdma_get_devices", errno_of(-1));
  return known.find(provider, context);
}

void CmDevice::look(const Provider& provider) {
  Known& known = known_devices();
  const remora::detail::MutexLock lock{known.mutex};
  if (known.entries.empty()) return;
  const std::vector<ibv_device*> here = present(provider);
  for (const Known::Entry& entry : known.entries)
    if (const auto device = entry.device.lock();
        device != nullptr && entry.provider == &provider &&
        std::find(here.begin(), here.end(), device->device_) == here.end())
      device->gone_.store(true, std::memory_order_release);
  // Contexts without another user are closed here, the others with their last user.
  std::erase_if(known.entries, [](const Known::Entry& entry) {
    const auto device = entry.device.lock();
    return device == nullptr || device->gone();
  });
}

void CmDevice::look_for_replaced(const Provider& provider) {
  Known& known = known_devices();
  const remora::detail::MutexLock lock{known.mutex};
  (void)known.take_list(provider);
}

void CmDevice::mark_gone() noexcept {
  gone_.store(true, std::memory_order_release);
  Known& known = known_devices();
  std::shared_ptr<CmDevice> self;  // outlives the lock
  const remora::detail::MutexLock lock{known.mutex};
  std::erase_if(known.entries, [&](Known::Entry& entry) {
    if (entry.device.lock().get() != this) return false;
    self = std::move(entry.kept);
    return true;
  });
}

}  // namespace remora::verbs::detail
