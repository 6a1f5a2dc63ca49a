#include "server/client_registry.h"

namespace remora::detail {

ClientRegistry::ClientRegistry(std::span<const config::ClientConfig> clients) {
  for (const config::ClientConfig& client : clients)
    clients_.emplace(client.name,
                     KnownClient{.name = client.name,
                                 .keys = {.current = client.key, .previous = client.previous_key},
                                 .create = client.create || client.admin,
                                 .admin = client.admin,
                                 .quota_bytes = client.quota_bytes});
}

const KnownClient* ClientRegistry::find(std::string_view name) const noexcept {
  const auto found = clients_.find(name);
  return found == clients_.end() ? nullptr : &found->second;
}

bool ClientRegistry::knows(std::string_view name,
                           const std::optional<config::SecretKey>& key) const noexcept {
  const KnownClient* const client = find(name);
  return client != nullptr && key && (client->keys.current == key || client->keys.previous == key);
}

Permission permission_of(const RegionInfo& region, const KnownClient* client) noexcept {
  if (client == nullptr || client->admin || (!region.owner.empty() && region.owner == client->name))
    return {.rights = region.rights, .admin = true};
  if (region.access.empty())
    return {.rights = region.owner.empty() ? region.rights : Rights::kNone, .admin = false};
  Permission found;
  for (const RegionAccess& access : region.access) {
    if (access.client != config::kAnyClient && access.client != client->name) continue;
    found.rights = found.rights | access.rights;
    found.admin = found.admin || access.admin;
  }
  found.rights = found.rights & region.rights;
  return found;
}

}  // namespace remora::detail
