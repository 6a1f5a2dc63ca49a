#pragma once

/// The domains of a server's clients: the same one for all sessions that prove the same key on a
/// device.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/protection_domain.h>

#include "transport/rdma/device_budgets.h"
#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_share.h"

namespace remora::transport::rdma {

/// Thread-safe.
class GrantDomains {
 public:
  /// `bytes`: of all registrations of grants; null: not counted.
  GrantDomains(std::shared_ptr<RegistrationBudgets> registrations, std::shared_ptr<Budget> bytes)
      : registrations_{std::move(registrations)}, bytes_{std::move(bytes)} {}

  /// A domain for one session, whose grants share nothing.
  [[nodiscard]] std::shared_ptr<GrantDomain> own(verbs::ProtectionDomain domain) const;
  /// The domain of the client that has proven `key` as `name`; a new one where there is none, or
  /// only one that is retired. It lives as long as its sessions hold it. **Blocks** until the
  /// device has answered. Errors: those of verbs::Device::allocate_domain().
  [[nodiscard]] Result<std::shared_ptr<GrantDomain>> of(const verbs::Device& device,
                                                        std::string_view name,
                                                        const config::SecretKey& key);
  /// Of all registrations with the device.
  [[nodiscard]] GrantBudgets budgets_of(const verbs::Device& device) const;
  /// Domains of clients that prove a key.
  [[nodiscard]] std::size_t count() const;

 private:
  /// One key of one client.
  struct Client {
    config::SecretKey key;
    std::vector<std::weak_ptr<GrantDomain>> domains{};  ///< by device, and by life of a device
    /// Held by the client's sessions also while a device is away, whose keys may return.
    std::weak_ptr<GivenUpKeys> given_up{};
    [[nodiscard]] bool unused() const noexcept;
  };
  [[nodiscard]] Client& client(std::string_view name, const config::SecretKey& key)
      REMORA_REQUIRES(mutex_);

  const std::shared_ptr<RegistrationBudgets> registrations_;
  const std::shared_ptr<Budget> bytes_;
  mutable remora::detail::Mutex mutex_;
  std::multimap<std::string, Client, std::less<>> clients_ REMORA_GUARDED_BY(mutex_);  ///< by name
};

}  // namespace remora::transport::rdma
