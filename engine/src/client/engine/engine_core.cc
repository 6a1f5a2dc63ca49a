#include "client/engine/engine_core.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <remora/engine/engine.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/owned.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/session/session_core.h"
#include "transport/connect.h"
#include "transport/fault/core.h"

namespace remora::detail {

EngineCore::EngineCore(EngineOptions options, Placement placement)
    : EngineServices{std::move(options), std::move(placement)} {}

Result<std::shared_ptr<EngineCore>> EngineCore::create(EngineOptions options) {
  constexpr std::uint32_t kCopyThreadsMax = 256;
  constexpr std::size_t kClientNameBytesMax = 64;
  constexpr std::uint32_t kLaneDepthMax = 16384;
  const auto wrong = [](std::string_view what) {
    return Error{Code::kInvalidArgument, "Engine::open"}.with_subject(what);
  };
  if (options.client_name.size() > kClientNameBytesMax) return wrong("client_name is too long");
  if (options.key && !config::is_client_name(options.client_name))
    return wrong("client_name of a key: 1 to 64 of A-Z a-z 0-9 . _ -");
  if (options.lane_depth == 0 || options.lane_depth > kLaneDepthMax)
    return wrong("lane_depth").with_limit(options.lane_depth, kLaneDepthMax);
  if (options.lanes == 0 || options.lanes > kLanesMax)
    return wrong("lanes").with_limit(options.lanes, kLanesMax);
  if (options.copy_threads > kCopyThreadsMax)
    return wrong("copy_threads").with_limit(options.copy_threads, kCopyThreadsMax);
  if (options.pollers > kPollersMax)
    return wrong("pollers").with_limit(options.pollers, kPollersMax);
  if (options.control_threads > kControlThreadsMax)
    return wrong("control_threads").with_limit(options.control_threads, kControlThreadsMax);
  if (options.arena_threads > kArenaThreadsMax)
    return wrong("arena_threads").with_limit(options.arena_threads, kArenaThreadsMax);
  if (options.bounce_slot_count == 0 || options.bounce_slot_bytes < 64)
    return wrong("bounce slots: at least one, of at least 64 bytes");
  if (options.operation_deadline <= options.operation_deadline.zero() ||
      options.control_deadline <= options.control_deadline.zero())
    return wrong("deadlines must be positive");
  if (options.faults != nullptr && options.faults->foreign())
    return closed_handle("EngineOptions::faults", true);
  auto placement = Placement::create(options.placement, options.device);
  if (!placement) return placement.error();
  if (options.registry == nullptr) {
    auto registry = metrics::Registry::create();
    if (!registry) return registry.error();
    options.registry = std::move(*registry);
  }
  if (const Status counted = log::count_lost_lines(*options.registry); !counted)
    return counted.error();
  return std::make_shared<EngineCore>(std::move(options), std::move(*placement));
}

EngineCore::Turn::Turn(EngineCore& engine, std::string key, Deadline deadline)
    : engine_{engine}, key_{std::move(key)} {
  MutexLock lock{engine_.mutex_};
  mine_ = engine_.turn_over_.wait_until(lock, deadline, [this] {
    engine_.mutex_.assert_held();
    return !engine_.connecting_.contains(key_);
  });
  if (mine_) engine_.connecting_.insert(key_);
}

EngineCore::Turn::~Turn() {
  if (!mine_) return;
  const MutexLock lock{engine_.mutex_};
  engine_.connecting_.erase(key_);
  engine_.turn_over_.notify_all();
}

Result<std::shared_ptr<SessionCore>> EngineCore::session(const Uri& uri, TransportKind kind,
                                                         bool hardware_only, Deadline deadline) {
  const bool payload_crc =
      kind == TransportKind::kTcp && (uri.payload_crc || options().tcp_payload_crc);
  const std::string key = uri.host + "|" + std::to_string(uri.port) + "|" +
                          std::string{to_string(kind)} +
                          (kind == TransportKind::kRdma && hardware_only ? "|hardware" : "") +
                          (payload_crc ? "|crc" : "");
  const Turn turn{*this, key, deadline};
  if (!turn.mine())
    return Error{Code::kTimedOut, "connect"}
        .with_server(uri.server())
        .with_reason(Reason::kExpired);
  // Outlives the lock: the last reference to a session must not go while the engine is locked.
  std::shared_ptr<SessionCore> existing;
  {
    const MutexLock lock{mutex_};
    existing = sessions_[key].lock();
  }
  if (existing != nullptr && existing->connected()) return existing;
  const transport::ConnectOptions how{.device = options().device,
                                      .hardware_only = hardware_only,
                                      .payload_crc = payload_crc,
                                      .core_dump = options().core_dump};
  Dial dial{.server = uri.server(), .connect = [uri, kind, how](Deadline until) {
              return transport::connect(kind, uri, how, until);
            }};
  if (options().faults != nullptr)
    dial.connect = transport::with_faults(options().faults, kind, std::move(dial.connect));
  auto session = SessionCore::start(shared_from_this(), std::move(dial), deadline);
  if (!session) return session.error().with_server(uri.server());
  const MutexLock lock{mutex_};
  sessions_[key] = *session;
  return session;
}

Result<Uri> region_uri(std::string_view text, Rights rights) {
  auto uri = Uri::parse(text);
  if (!uri) return uri;
  if (uri->region.empty())
    return Error{Code::kInvalidArgument, "URI without a region"}.with_subject(text);
  if (rights == Rights::kNone)
    return Error{Code::kInvalidArgument, "open without any right"}.with_subject(uri->region);
  return uri;
}

}  // namespace remora::detail
