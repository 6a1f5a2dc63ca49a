#pragma once

/// The clients that a server knows, and what each may do with a region.

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

/// One client: what proves it, and what it may do.
struct KnownClient {
  std::string name{};
  control::ServerHandshake::Keys keys{};
  bool create = false;
  bool admin = false;
  std::uint64_t quota_bytes = 0;  ///< 0: none
};

/// All clients. Never changes: set_clients() replaces it.
class ClientRegistry {
 public:
  explicit ClientRegistry(std::span<const config::ClientConfig> clients);
  /// Null where there is none of that name. Lives as long as the registry.
  [[nodiscard]] const KnownClient* find(std::string_view name) const noexcept;
  /// Whether there is a client of that name, and the key is one of its own.
  [[nodiscard]] bool knows(std::string_view name,
                           const std::optional<config::SecretKey>& key) const noexcept;

 private:
  std::map<std::string, KnownClient, std::less<>> clients_;
};

/// What one client may do with one region.
struct Permission {
  Rights rights = Rights::kNone;
  bool admin = false;  ///< may remove it
  /// The client may know that the region is there.
  [[nodiscard]] bool any() const noexcept { return rights != Rights::kNone || admin; }
};

/// `client` null: auth is none, and every client may do everything. An admin and the owner may do
/// everything; other clients what the access list gives them or, where there is none, what a region
/// of the server's own allows all clients.
[[nodiscard]] Permission permission_of(const RegionInfo& region,
                                       const KnownClient* client) noexcept;

}  // namespace remora::detail
