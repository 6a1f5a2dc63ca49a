#pragma once

/// The clients that a server knows, and their rights on regions.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/engine/region.h>

#include "protocol/server_handshake.h"

namespace remora::detail {

/// One client: the keys that prove it, and its rights.
struct KnownClient {
  std::string name{};
  control::ServerHandshake::Keys keys{};
  bool create = false;
  bool admin = false;
  std::uint64_t quota_bytes = 0;  ///< 0: no quota
};

/// All clients. Never changes: set_clients() replaces it.
class ClientRegistry {
 public:
  explicit ClientRegistry(std::span<const config::ClientConfig> clients);
  /// Null: there is no client of that name. The result lives as long as the registry.
  [[nodiscard]] const KnownClient* find(std::string_view name) const noexcept;
  /// Whether there is a client of that name, and it has this key.
  [[nodiscard]] bool knows(std::string_view name,
                           const std::optional<config::SecretKey>& key) const noexcept;

 private:
  std::map<std::string, KnownClient, std::less<>> clients_;
};

/// The rights of one client on one region.
struct Permission {
  Rights rights = Rights::kNone;
  bool admin = false;  ///< the client may remove the region
  /// Whether the client may know that the region exists.
  [[nodiscard]] bool any() const noexcept { return rights != Rights::kNone || admin; }
};

/// `client` null: auth is none, and every client may do everything. An admin and the region's owner
/// may do everything. Other clients have the rights of the access list or, without a list, the
/// rights that a region of the server gives to all clients.
[[nodiscard]] Permission permission_of(const RegionInfo& region,
                                       const KnownClient* client) noexcept;

}  // namespace remora::detail
