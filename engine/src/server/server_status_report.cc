#include "server/server_status_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/server_core.h"
#include "transport/listener_devices.h"
#include "transport/work_request.h"
#include "version.h"

namespace remora::detail {

namespace {

using Json = nlohmann::json;

/// The control thread updates its heartbeat ten times a second.
constexpr std::chrono::seconds kBeatPatience{10};

Json rights_of(Rights rights) {
  std::string words;
  const auto add = [&](Rights right, const char* word) {
    if (includes(rights, right)) words.append(words.empty() ? "" : ",").append(word);
  };
  add(Rights::kRead, "read");
  add(Rights::kWrite, "write");
  add(Rights::kAtomic, "atomic");
  return words;
}

template <typename Number>
Json or_null(const std::optional<Number>& setting) {
  return setting ? Json(*setting) : Json(nullptr);
}

Json describe(const config::RdmaSettings& rdma) {
  return {{"traffic_class", or_null(rdma.traffic_class)},
          {"service_level", or_null(rdma.service_level)},
          {"pkey", or_null(rdma.pkey)},
          {"gid_index", or_null(rdma.gid_index)},
          {"mtu", or_null(rdma.mtu)},
          {"timeout", or_null(rdma.timeout)},
          {"retry_count", or_null(rdma.retry_count)},
          {"rnr_retry", or_null(rdma.rnr_retry)}};
}

Json describe(const RegionInfo& region) {
  return {{"name", region.name},
          {"size_bytes", region.size_bytes},
          {"block_bytes", region.block_bytes},
          {"rights", rights_of(region.rights)},
          {"atomics", region.atomic_domain},
          {"shm", region.shm},
          {"owner", region.owner},
          {"grants", region.open_count}};
}

Json describe(const ServerSession& session) {
  Json out{{"id", fmt::format("{:x}", session.id())},
           {"transport", to_string(session.endpoint().kind())},
           {"peer", session.endpoint().peer()},
           {"device", session.endpoint().device()},
           {"client",
            session.handshake_complete() ? Json(session.handshake().client_name()) : Json(nullptr)},
           {"client_proven", session.handshake_complete() && session.handshake().proven()},
           {"age_seconds",
            std::chrono::duration<double>{Clock::now() - session.handshake().began()}.count()},
           {"regions", session.grants().open_count()},
           {"operations", nullptr},
           {"read_bytes", nullptr},
           {"written_bytes", nullptr}};
  const auto served = session.endpoint().served();
  if (!served) return out;
  const auto count = [&](transport::Opcode opcode) {
    return served->operations[static_cast<std::size_t>(opcode)];
  };
  out["operations"] = {{"read", count(transport::Opcode::kRead)},
                       {"write", count(transport::Opcode::kWrite)},
                       {"cas", count(transport::Opcode::kCompareSwap)},
                       {"add", count(transport::Opcode::kFetchAdd)}};
  out["read_bytes"] = served->bytes[0];
  out["written_bytes"] = served->bytes[1];
  return out;
}

/// Asks for one region more than it lists, to learn whether there are more.
void list_regions(const ServerCore& core, const metrics::StatusQuery& query, Json& out) {
  Json& list = out["regions"] = Json::array();
  Json& next = out["regions_next"] = nullptr;
  for (const RegionInfo& region :
       core.regions().catalog().list(query.regions_after, query.limit + 1)) {
    if (list.size() == query.limit) {
      next = list.back()["name"];
      break;
    }
    list.push_back(describe(region));
  }
  out["regions_total"] = core.regions().catalog().size();
}

void list_sessions(const ServerCore& core, const metrics::StatusQuery& query, Json& out) {
  Json& list = out["sessions"] = Json::array();
  Json& next = out["sessions_next"] = nullptr;
  std::string last;
  for (const auto& [id, session] :
       core.session_table().list(query.sessions_after, query.limit + 1)) {
    if (list.size() == query.limit) {
      next = last;
      break;
    }
    list.push_back(describe(*session));
    last = id;
  }
  out["sessions_total"] = core.session_count();
}

Json describe(const transport::DeviceProtection& protection) {
  Json checks = Json::object();
  for (const auto& check : protection.checks)
    checks[check.name] = {{"verdict", check.verdict}, {"reason", check.reason}};
  return {{"mechanism", protection.mechanism},
          {"reason", protection.reason},
          {"checks", std::move(checks)}};
}

/// `restored`: the sessions of the previous process whose clients have not returned yet.
Json describe(const WarmMemory* warm, std::size_t restored) {
  if (warm == nullptr) return {{"enabled", false}};
  return {{"enabled", true},
          {"ready", warm->ready()},
          {"taken_over", warm->reason().empty()},
          {"reason", warm->reason()},
          {"sessions_awaited", restored}};
}

void list_devices(const ServerCore& core, Json& out) {
  Json& used = out["devices"] = Json::array();
  Json& left_out = out["devices_left_out"] = Json::array();
  for (const transport::DeviceState& state : core.listeners().device_states()) {
    if (state.use == transport::DeviceUse::kLeftOut) {
      left_out.push_back({{"name", state.device}, {"reason", state.reason}});
      continue;
    }
    const bool serving = state.use == transport::DeviceUse::kServing;
    used.push_back({{"name", state.device},
                    {"state", to_string(state.use)},
                    {"reason", state.reason},
                    {"atomics", state.atomics},
                    {"protection", serving ? describe(state.protection) : Json(nullptr)}});
  }
  for (const auto& listener : core.listeners().listeners()) {
    const transport::ListenerDevices* const devices = listener->devices();
    if (devices == nullptr) continue;
    const transport::DeviceTotals totals = devices->totals();
    out["registrations"] = {{"count", totals.registrations},
                            {"bytes", totals.registered_bytes},
                            {"windows", totals.windows},
                            {"client_domains", totals.client_domains}};
  }
}

}  // namespace

void ServerStatusReport::open(const ServerCore& core) noexcept {
  beat();
  const MutexLock lock{mutex_};
  core_ = &core;
}

void ServerStatusReport::close() noexcept {
  const MutexLock lock{mutex_};
  core_ = nullptr;
}

metrics::Health ServerStatusReport::health() const {
  const MutexLock lock{mutex_};
  if (core_ == nullptr) return {};  // the server is starting or stopping
  const Clock::duration silent = Clock::now() - Clock::time_point{Clock::duration{beat_.load()}};
  if (silent < kBeatPatience) return {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silent).count();
  return {false, "the control thread has not come round for " + std::to_string(seconds) +
                     " s: clients cannot connect"};
}

std::vector<std::string> ServerStatusReport::unready() const {
  if (draining_.load()) return {"stopping: new sessions are refused"};
  std::vector<std::string> reasons;
  if (drained_.load())
    reasons.emplace_back("drained by an administrator: no region is created or opened");
  const metrics::Health alive = health();
  if (!alive.ok) reasons.push_back(alive.text);
  const MutexLock lock{mutex_};
  if (core_ == nullptr) return {"starting: the pool and its regions are being made"};
  // A full server counts as ready: a supervisor may restart a server that is not ready, and the
  // clients would lose their data.
  if (const std::chrono::seconds busy = core_->job_age(); busy >= core_->limits().request_timeout)
    reasons.push_back("busy: one control request has taken " + std::to_string(busy.count()) +
                      " s, more than limits.request_timeout; others wait");
  for (const transport::DeviceState& state : core_->listeners().device_states())
    if (state.use == transport::DeviceUse::kGone)
      reasons.push_back("rdma: " + state.device +
                        " has gone: clients do not reach the server over " +
                        "it; the server looks for it");
  for (const auto& listener : core_->listeners().listeners())
    if (const Status serving = listener->serving(); !serving)
      reasons.push_back(std::string{to_string(listener->kind())} +
                        ": no new client can be served: " + serving.error().message());
  return reasons;
}

std::string ServerStatusReport::json(const metrics::StatusQuery& query) const {
  Json out{{"kind", "server"}, {"version", kVersion}, {"transports", Json::array()}};
  for (const RefusedTransport& refused : refused_)
    out["transports"].push_back({{"name", to_string(refused.kind)},
                                 {"offered", false},
                                 {"reason", refused.error.message()}});
  out["rdma"] = describe(rdma_);
  const MutexLock lock{mutex_};
  if (core_ != nullptr) {
    for (const TransportKind kind : core_->listeners().offered())
      out["transports"].push_back(
          {{"name", to_string(kind)}, {"offered", true}, {"reason", "as configured"}});
    out["listening"] = core_->listeners().descriptions();
    out["boot_id"] = fmt::format("{:x}", core_->boot_id());
    out["memory_id"] = fmt::format("{:x}", core_->memory_id());
    list_devices(*core_, out);
    const PoolUsage pool = core_->pool_usage();
    out["pool"] = {{"size_bytes", pool.total_bytes},
                   {"used_bytes", pool.used_bytes},
                   {"freeing_bytes", pool.freeing_bytes},
                   {"orphaned_bytes", core_->orphaned_bytes()}};
    out["warm_restart"] = describe(core_->warm(), core_->restored_sessions().awaited());
    list_regions(*core_, query, out);
    list_sessions(*core_, query, out);
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace remora::detail
