#pragma once

/// The protection domains of a server's clients: on each device all sessions that prove the same
/// key share one.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/mutex.h>
#include <remora/verbs/device.h>

#include "transport/rdma/device_budgets.h"
#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_share.h"

namespace remora::transport::rdma {

/// Thread-safe.
class GrantDomains {
 public:
  /// `bytes`: the budget of all registrations of grants; null: not counted.
  GrantDomains(std::shared_ptr<RegistrationBudgets> registrations, std::shared_ptr<Budget> bytes)
      : registrations_{std::move(registrations)}, bytes_{std::move(bytes)} {}

  /// A new domain for one session, whose grants share nothing.
  [[nodiscard]] std::shared_ptr<GrantDomain> own(const verbs::Device& device) const;
  /// The domain of the client that has proven `key` as `name`; a new one if there is none, or only
  /// a retired one. It lives as long as its sessions hold it.
  [[nodiscard]] std::shared_ptr<GrantDomain> of(const verbs::Device& device, std::string_view name,
                                                const config::SecretKey& key);
  /// The budgets of all registrations with the device.
  [[nodiscard]] GrantBudgets budgets_of(const verbs::Device& device) const;
  /// The number of domains of clients that prove a key.
  [[nodiscard]] std::size_t count() const;

 private:
  /// One client, by name, with one of its keys.
  struct Client {
    config::SecretKey key;
    std::vector<std::weak_ptr<GrantDomain>> domains{};  ///< by device, and by arrival of the device
    /// Its sessions keep it also while a device is away, since keys of the device may return.
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
