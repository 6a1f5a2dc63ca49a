#include "transport/rdma/grant_domains.h"

#include <algorithm>

namespace remora::transport::rdma {

bool GrantDomains::Client::unused() const noexcept {
  return given_up.expired() && std::all_of(domains.begin(), domains.end(),
                                           [](const auto& domain) { return domain.expired(); });
}

GrantBudgets GrantDomains::budgets_of(const verbs::Device& device) const {
  return {registrations_->of(device.name(), device.attributes().max_mr_count), bytes_};
}

std::shared_ptr<GrantDomain> GrantDomains::own(const verbs::Device& device) const {
  return std::make_shared<GrantDomain>(device, GrantDomain::Sharing::kNone, budgets_of(device));
}

GrantDomains::Client& GrantDomains::client(std::string_view name, const config::SecretKey& key) {
  const auto [first, last] = clients_.equal_range(name);
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return entry.second.key == key; });
  if (found != last) return found->second;
  // Removes unused entries: clients come and go, and their keys change.
  std::erase_if(clients_, [](const auto& entry) { return entry.second.unused(); });
  return clients_.emplace(std::string{name}, Client{.key = key})->second;
}

std::shared_ptr<GrantDomain> GrantDomains::of(const verbs::Device& device, std::string_view name,
                                              const config::SecretKey& key) {
  const remora::detail::MutexLock lock{mutex_};
  Client& known = client(name, key);
  std::erase_if(known.domains, [](const auto& domain) { return domain.expired(); });
  for (const auto& weak : known.domains)
    if (auto domain = weak.lock();
        domain != nullptr && domain->device() == device && !domain->retired())
      return domain;
  auto given_up = known.given_up.lock();
  if (given_up == nullptr) given_up = std::make_shared<GivenUpKeys>();
  auto made = std::make_shared<GrantDomain>(device, GrantDomain::Sharing::kOneClient,
                                            budgets_of(device), given_up);
  known.given_up = given_up;
  known.domains.emplace_back(made);
  return made;
}

std::size_t GrantDomains::count() const {
  const remora::detail::MutexLock lock{mutex_};
  std::size_t count = 0;
  for (const auto& entry : clients_)
    count += static_cast<std::size_t>(
        std::count_if(entry.second.domains.begin(), entry.second.domains.end(),
                      [](const auto& domain) { return !domain.expired(); }));
  return count;
}

}  // namespace remora::transport::rdma
