#include "client/engine/shared_sessions.h"

#include <remora/assert.h>

#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "transport/connect.h"
#include "transport/fault/core.h"
#include "transport/rail_choice.h"
#include "transport/rail_plan.h"
#include "transport/session_domain.h"

namespace remora::detail {

SharedSessions::Turn::Turn(SharedSessions& sessions, std::string key, Deadline deadline)
    : sessions_{sessions}, key_{std::move(key)} {
  MutexLock lock{sessions_.mutex_};
  mine_ = sessions_.turn_over_.wait_until(lock, deadline, [this] {
    sessions_.mutex_.assert_held();
    return !sessions_.connecting_.contains(key_);
  });
  if (mine_) sessions_.connecting_.insert(key_);
}

SharedSessions::Turn::~Turn() {
  if (!mine_) return;
  const MutexLock lock{sessions_.mutex_};
  const std::size_t erased = sessions_.connecting_.erase(key_);
  REMORA_ASSERT(erased == 1, "one thread at a time connects by a key");
  sessions_.turn_over_.notify_all();
}

Result<std::shared_ptr<SessionCore>> SharedSessions::find_or_start(EngineServices& engine,
                                                                   const Uri& uri,
                                                                   TransportKind kind,
                                                                   bool hardware_only,
                                                                   Deadline deadline) {
  const EngineOptions& options = engine.options();
  const bool payload_crc =
      kind == TransportKind::kTcp && (uri.payload_crc || options.tcp_payload_crc);
  const config::RdmaSettings rdma = config::with_defaults(uri.rdma, options.rdma);
  const std::string& wanted = uri.rails.empty() ? options.rails : uri.rails;
  auto rails = transport::RailChoice::parse(wanted);
  if (!rails) return rails.error();
  const std::string key =
      uri.host + "|" + std::to_string(uri.port) + "|" + std::string{to_string(kind)} +
      (kind == TransportKind::kRdma && hardware_only ? "|hardware" : "") +
      (payload_crc ? "|crc" : "") +
      (kind == TransportKind::kRdma && wanted != "1" ? "|rails=" + wanted : "") +
      (kind == TransportKind::kRdma ? "|" + to_string(rdma) : "");
  const Turn turn{*this, key, deadline};
  if (!turn.mine())
    return Error{Code::kTimedOut, "connect"}
        .with_server(uri.server())
        .with_reason(Reason::kExpired);
  // Destroyed after the lock, since the last reference to a session must not be released with the
  // mutex locked.
  std::shared_ptr<SessionCore> existing;
  {
    const MutexLock lock{mutex_};
    existing = sessions_[key].lock();
  }
  if (existing != nullptr && existing->connected()) return existing;
  std::shared_ptr<transport::RailPlan> plan;
  std::string device = options.device;
  // If the rails name one device, the session uses only that device.
  if (device.empty() && rails->devices.size() == 1) device = rails->devices.front();
  if (kind == TransportKind::kRdma && rails->several())
    plan = std::make_shared<transport::RailPlan>(std::move(*rails));
  // A session over a device that was named stays on it. Rails bring their own choice of devices.
  std::shared_ptr<transport::SessionDomain> domain;
  if (kind == TransportKind::kRdma && device.empty() && plan == nullptr)
    domain = std::make_shared<transport::SessionDomain>();
  const transport::ConnectOptions how{.device = std::move(device),
                                      .rails = std::move(plan),
                                      .domain = std::move(domain),
                                      .hardware_only = hardware_only,
                                      .payload_crc = payload_crc,
                                      .rdma = rdma,
                                      .core_dump = options.core_dump,
                                      .populate = options.populate};
  ServerConnector connector{.server = uri.server(), .connect = [uri, kind, how](Deadline until) {
                              return transport::connect(kind, uri, how, until);
                            }};
  if (options.faults != nullptr)
    connector.connect = transport::with_faults(options.faults, kind, std::move(connector.connect));
  auto session = SessionCore::start(engine.shared_from_this(), std::move(connector), deadline);
  if (!session) return session.error().with_server(uri.server());
  const MutexLock lock{mutex_};
  sessions_[key] = *session;
  return session;
}

std::vector<SharedSessions::Keyed> SharedSessions::all() const {
  // Destroyed after the lock, since the last reference to a session must not be released with the
  // mutex locked.
  std::vector<Keyed> all;
  const MutexLock lock{mutex_};
  for (const auto& [key, session] : sessions_)
    if (auto alive = session.lock()) all.emplace_back(key, std::move(alive));
  return all;
}

}  // namespace remora::detail
