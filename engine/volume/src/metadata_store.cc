#include <algorithm>
#include <utility>

#include <remora/volume/metadata_store.h>

namespace remora::volume {

const Entry* Snapshot::find(std::string_view key) const noexcept {
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), key,
      [](const Entry& entry, std::string_view wanted) { return entry.key < wanted; });
  return found != entries.end() && found->key == key ? &*found : nullptr;
}

Result<std::optional<Entry>> get_one(MetadataStore& store, const std::string& key,
                                     std::chrono::nanoseconds limit) {
  auto snapshot = store.get({&key, 1}, limit);
  if (!snapshot) return snapshot.error();
  if (snapshot->entries.empty()) return std::optional<Entry>{};
  return std::optional<Entry>{std::move(snapshot->entries.front())};
}

}  // namespace remora::volume
