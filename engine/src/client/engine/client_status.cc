#include "client/engine/client_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <remora/metrics/http_endpoint.h>

#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "version.h"

namespace remora::detail {

namespace {

using Json = nlohmann::json;

/// The largest number of regions in the list of one session.
constexpr std::size_t kMaxListed = 1'000;

/// The depth that the device has given the session's lanes; if memory is mapped, the depth that the
/// engine requests.
std::uint32_t depth_of(const SessionCore& session) {
  const auto& lanes = session.lanes();
  const std::uint32_t given = lanes.empty() ? 0 : lanes.front()->depth();
  return given != 0 ? given : session.engine().options().lane_depth;
}

/// The rails of the session's lanes; empty: the session uses one device.
Json rails_of(const SessionCore& session) {
  Json rails = Json::array();
  for (const auto& lane : session.lanes()) {
    const auto rail = lane->rail();
    if (rail == nullptr) continue;
    const auto same = std::find_if(rails.begin(), rails.end(), [&](const Json& each) {
      return each["device"] == rail->device && each["address"] == rail->address;
    });
    if (same != rails.end()) {
      (*same)["lanes"] = (*same)["lanes"].get<int>() + 1;
      continue;
    }
    rails.push_back({{"device", rail->device},
                     {"server_device", rail->server_device},
                     {"address", rail->address},
                     {"gigabits_per_s", rail->megabits_per_s / 1000.0},
                     {"lanes", 1}});
  }
  return rails;
}

/// `key`: ends with the settings of rdma, see SharedSessions::all().
Json describe(const std::string& key, const SessionCore& session) {
  Json out{{"server", session.server_address()},
           {"server_name", session.server().name},
           {"transport", to_string(session.kind())},
           {"device", session.local_device()},
           {"connected", session.connected()},
           {"lanes", session.lanes().size()},
           {"rails", rails_of(session)},
           {"rdma", session.kind() == TransportKind::kRdma ? key.substr(key.rfind('|') + 1) : ""},
           {"depth", depth_of(session)},
           {"regions", Json::array()},
           {"reason", ""}};
  std::set<std::string> names;
  for (const OpenRegions::Region& region : session.open_regions().all()) {
    if (names.size() == kMaxListed) break;
    if (names.insert(region.name).second) out["regions"].push_back(region.name);
    out["reason"] = region.reason;
  }
  return out;
}

}  // namespace

std::string client_status_json(const EngineOptions& options,
                               std::vector<SharedSessions::Keyed> sessions,
                               const metrics::StatusQuery& query) {
  const std::size_t total = sessions.size();
  std::erase_if(sessions, [&](const auto& each) { return each.first <= query.sessions_after; });
  const bool more = sessions.size() > query.limit;
  if (more) sessions.resize(query.limit);
  Json out{{"kind", "client"},
           {"version", kVersion},
           {"name", options.client_name},
           {"devices", Json::array()},
           {"sessions", Json::array()},
           {"sessions_total", total},
           {"sessions_next", more ? Json(sessions.back().first) : Json(nullptr)}};
  std::set<std::string> devices;
  for (const auto& [key, session] : sessions) {
    out["sessions"].push_back(describe(key, *session));
    for (const auto& lane : session->lanes())
      if (const auto rail = lane->rail(); rail != nullptr && devices.insert(rail->device).second)
        out["devices"].push_back({{"name", rail->device}});
    if (!session->local_device().empty() && devices.insert(session->local_device()).second)
      out["devices"].push_back({{"name", session->local_device()}});
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace remora::detail
