#include "client_rules.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <remora/config/nearest.h>

#include "rules.h"
#include "text.h"

namespace remora::config {
namespace {

std::string client_path(std::size_t index) { return "clients[" + std::to_string(index) + "]"; }

std::string in_line(const Report& report, const std::string& path) {
  const std::size_t line = report.place(path).line;
  return line == 0 ? "" : " in line " + std::to_string(line);
}

// Checks one of a client's two keys.
void check_key(const std::string& path, const std::optional<SecretKey>& key,
               const std::string& file, bool required, Report& report) {
  const std::string named_by = path + "_file";
  if (!report.good(path) || !report.good(named_by) || key) return;
  // A struct filled by hand, or text in memory, for which no function has read the file.
  if (!file.empty())
    report.fault(named_by, "has not been read: load_server() does, else set the key");
  else if (required)
    report.fault(path,
                 "required: 64 hexadecimal digits, or key_file ('remora key generate FILE' "
                 "makes one)");
}

void check_client(const ServerConfig& config, std::size_t index, Report& report) {
  const ClientConfig& client = config.clients[index];
  const std::string path = client_path(index);
  check_key(path + ".key", client.key, client.key_file, true, report);
  check_key(path + ".previous_key", client.previous_key, client.previous_key_file, false, report);
  const std::string previous =
      client.previous_key_file.empty() ? ".previous_key" : ".previous_key_file";
  if (client.key && client.previous_key && *client.key == *client.previous_key &&
      report.good(path + previous))
    report.fault(path + previous, "is the same as key: remove it, or make a new key");
}

void check_names(const ServerConfig& config, Report& report) {
  std::map<std::string_view, std::size_t> names;
  for (std::size_t i = 0; i < config.clients.size(); ++i) {
    const std::string path = client_path(i) + ".name";
    if (!report.good(path)) continue;
    const auto [entry, is_new] = names.emplace(config.clients[i].name, i);
    const std::string other = client_path(entry->second);
    if (!is_new)
      report.fault(path, "the name " + in_quotes(config.clients[i].name) + " is taken by " + other +
                             in_line(report, other + ".name"));
  }
}

// A process with a key of two clients could claim the name of either.
void check_keys_differ(const ServerConfig& config, Report& report) {
  struct Owned {
    const SecretKey* key;
    std::size_t client;
  };
  std::vector<Owned> owned;
  for (std::size_t i = 0; i < config.clients.size(); ++i)
    for (const auto* key : {&config.clients[i].key, &config.clients[i].previous_key})
      if (*key) owned.push_back({&**key, i});
  const auto order = [](const Owned& a, const Owned& b) {
    return std::memcmp(a.key->bytes().data(), b.key->bytes().data(), SecretKey::kBytes);
  };
  std::sort(owned.begin(), owned.end(), [&](const Owned& a, const Owned& b) {
    const int found = order(a, b);
    return found != 0 ? found < 0 : a.client < b.client;
  });
  for (std::size_t i = 1; i < owned.size(); ++i)
    if (order(owned[i - 1], owned[i]) == 0 && owned[i - 1].client != owned[i].client)
      report.fault(client_path(owned[i].client), "has a key that is also one of " +
                                                     client_path(owned[i - 1].client) +
                                                     ": a client has a key of its own");
}

void check_access(const ServerConfig& config, Report& report) {
  std::vector<std::string_view> names;
  names.reserve(config.clients.size());
  for (const ClientConfig& client : config.clients) names.push_back(client.name);
  const std::set<std::string_view> known{names.begin(), names.end()};
  for (std::size_t r = 0; r < config.regions.size(); ++r) {
    const std::string list = region_path(r) + ".access";
    if (!report.good(list) || config.regions[r].access.empty()) continue;
    if (config.auth != Auth::kKeys) {
      report.fault(list, "needs 'auth: keys': without it no client proves its name");
      continue;
    }
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < config.regions[r].access.size(); ++i) {
      const RegionAccess& access = config.regions[r].access[i];
      const std::string path = list + "[" + std::to_string(i) + "].client";
      if (!report.good(path)) continue;
      if (!seen.insert(access.client).second)
        report.fault(path, in_quotes(access.client) + " stands there twice");
      if (access.client == kAnyClient || known.contains(access.client)) continue;
      const std::string_view near = nearest(access.client, names);
      report.fault(
          path, "no client " + in_quotes(access.client) + " in clients" +
                    (near.empty() ? std::string{} : ": did you mean '" + std::string{near} + "'?"));
    }
  }
}

}  // namespace

void check_clients(const ServerConfig& config, Report& report) {
  if (!report.good("auth") || !report.good("clients") || !report.good("regions")) return;
  if (config.auth == Auth::kKeys && config.clients.empty())
    report.fault("clients", "required with 'auth: keys': without them no client could connect");
  if (config.auth != Auth::kKeys && !config.clients.empty())
    report.fault("clients", "have no use without 'auth: keys'");
  for (std::size_t i = 0; i < config.clients.size(); ++i) check_client(config, i, report);
  check_names(config, report);
  check_keys_differ(config, report);
  check_access(config, report);
}

}  // namespace remora::config
