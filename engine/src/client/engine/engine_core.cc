#include "client/engine/engine_core.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <remora/engine/engine.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/owned.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/engine/admission_retry.h"
#include "client/engine/client_status.h"
#include "client/engine/transport_selection.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "transport/fault/core.h"
#include "transport/rail_choice.h"

namespace remora::detail {

EngineCore::EngineCore(EngineOptions options, Placement placement)
    : EngineServices{std::move(options), std::move(placement)} {}

Result<std::shared_ptr<EngineCore>> EngineCore::create(EngineOptions options) {
  constexpr std::uint32_t kMaxCopyThreads = 256;
  constexpr std::size_t kMaxClientNameBytes = 64;
  constexpr std::uint32_t kMaxLaneDepth = 16384;
  const auto wrong = [](std::string_view what) {
    return Error{Code::kInvalidArgument, "Engine::open"}.with_subject(what);
  };
  if (options.client_name.size() > kMaxClientNameBytes) return wrong("client_name is too long");
  if (options.key && !config::is_client_name(options.client_name))
    return wrong("client_name of a key: 1 to 64 of A-Z a-z 0-9 . _ -");
  if (options.lane_depth == 0 || options.lane_depth > kMaxLaneDepth)
    return wrong("lane_depth").with_limit(options.lane_depth, kMaxLaneDepth);
  if (options.lanes == 0 || options.lanes > kMaxLanes)
    return wrong("lanes").with_limit(options.lanes, kMaxLanes);
  if (options.copy_threads > kMaxCopyThreads)
    return wrong("copy_threads").with_limit(options.copy_threads, kMaxCopyThreads);
  if (options.pollers > kMaxPollers)
    return wrong("pollers").with_limit(options.pollers, kMaxPollers);
  if (options.control_threads > kMaxControlThreads)
    return wrong("control_threads").with_limit(options.control_threads, kMaxControlThreads);
  if (options.arena_threads > kMaxArenaThreads)
    return wrong("arena_threads").with_limit(options.arena_threads, kMaxArenaThreads);
  if (options.bounce_slot_count == 0 || options.bounce_slot_bytes < 64)
    return wrong("bounce slots: at least one, of at least 64 bytes");
  if (options.operation_deadline <= options.operation_deadline.zero() ||
      options.control_deadline <= options.control_deadline.zero())
    return wrong("deadlines must be positive");
  if (options.faults != nullptr && options.faults->foreign())
    return closed_handle("EngineOptions::faults", true);
  if (const Status checked = config::check(options.rdma); !checked)
    return wrong("rdma: " + std::string{checked.error().subject()});
  if (const auto rails = transport::RailChoice::parse(options.rails); !rails)
    return wrong("rails: " + options.rails);
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

Result<std::shared_ptr<SessionCore>> EngineCore::connect(const Uri& uri,
                                                         const ControlLimits& limits) {
  return AdmissionRetry{options().connect_for, uri, limits}.run([&](Attempt& attempt) {
    return TransportSelection{*this, sessions_, uri, attempt_deadline(limits.until)}.connect(
        attempt);
  });
}

Result<Region> EngineCore::open_region(const Uri& uri, Rights rights, Opening opening,
                                       const ControlLimits& limits) {
  return AdmissionRetry{options().connect_for, uri, limits}.run([&](Attempt& attempt) {
    return open_once(uri, rights, opening, attempt_deadline(limits.until), attempt);
  });
}

Result<Region> EngineCore::open_again(const Uri& uri, Rights rights, Opening opening,
                                      Deadline deadline) {
  Attempt attempt;
  return open_once(uri, rights, opening, attempt_deadline(deadline), attempt);
}

Result<Region> EngineCore::open_once(const Uri& uri, Rights rights, Opening opening,
                                     Deadline deadline, Attempt& attempt) {
  auto grant = TransportSelection{*this, sessions_, uri, deadline}.open(rights, opening, attempt);
  if (!grant) return grant.error();
  (*grant)->set_origin(uri, *this);
  return Region{std::move(*grant)};
}

std::string EngineCore::status_json(const metrics::StatusQuery& query) const {
  return client_status_json(options(), sessions_.all(), query);
}

Result<Region> open_by(const OwnedShared<EngineCore>& core, std::string_view uri, Rights rights,
                       Opening opening) {
  if (core == nullptr) return closed("open", core);
  auto parsed = region_uri(uri, rights);
  if (!parsed) return parsed.error();
  return core->open_region(*parsed, rights, opening, {});
}

Result<Session> connect_by(const OwnedShared<EngineCore>& core, std::string_view uri) {
  if (core == nullptr) return closed("connect", core);
  auto parsed = Uri::parse(uri);
  if (!parsed) return parsed.error();
  auto session = core->connect(*parsed, {});
  if (!session) return session.error();
  return Session{std::move(*session)};
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
