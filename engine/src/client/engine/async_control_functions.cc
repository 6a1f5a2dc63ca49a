/// The non-blocking control functions of Engine, Session and Region.

#include <algorithm>
#include <string>
#include <utility>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"

namespace remora {

using detail::closed;
using detail::ControlLimits;
using detail::EngineCore;
using detail::EngineServices;
using detail::Opening;

namespace {

AsyncControl<Result<Region>> open_later(const detail::OwnedShared<EngineCore>& core, Operation name,
                                        std::string_view text, Rights rights, Opening opening,
                                        const ControlOptions& options) {
  using Opened = AsyncControl<Result<Region>>;
  if (core == nullptr) return Opened{closed(name, core)};
  auto uri = detail::region_uri(text, rights);
  if (!uri) return Opened{uri.error()};
  return {
      core.pointer(), name, core->control_options(options),
      [engine = core.get(), uri = std::move(*uri), rights, opening](const ControlLimits& limits) {
        return engine->open_region(uri, rights, opening, limits);
      }};
}

Result<ReopenedRegion> reopen_now(const detail::RegionGrant& before, const ControlLimits& limits) {
  auto opened = before.opener().open_region(before.uri(), before.rights(), Opening::kOpen, limits);
  if (!opened) return opened.error();
  const RegionInfo& was = before.info();
  const RegionInfo& is = opened->info();
  // 0: an older server, which does not send these ids.
  const bool same = was.memory_id == is.memory_id && was.incarnation == is.incarnation &&
                    was.memory_id != 0 && was.incarnation != 0;
  return ReopenedRegion{.region = std::move(*opened), .same_contents = same};
}

/// The deadline may be longer than EngineOptions::control_deadline, since the caller does not
/// block.
AsyncControl<Status> settle_later(const std::shared_ptr<detail::SessionCore>& session,
                                  std::chrono::nanoseconds deadline, ControlOptions options) {
  options.deadline = deadline;
  return {session->engine().shared_from_this(), "settled", options,
          [session](const ControlLimits& limits) { return session->settled(limits); }};
}

}  // namespace

AsyncControl<Result<Region>> Engine::async_open_region(std::string_view uri, Rights rights,
                                                       const ControlOptions& options) const {
  return open_later(core_, "open", uri, rights, Opening::kOpen, options);
}

AsyncControl<Result<Region>> Engine::async_fence_region(std::string_view uri, Rights rights,
                                                        const ControlOptions& options) const {
  return open_later(core_, "fence", uri, rights, Opening::kFence, options);
}

AsyncControl<Result<Session>> Engine::async_connect(std::string_view text,
                                                    const ControlOptions& options) const {
  using Connected = AsyncControl<Result<Session>>;
  if (core_ == nullptr) return Connected{closed("connect", core_)};
  auto uri = Uri::parse(text);
  if (!uri) return Connected{uri.error()};
  return {core_.pointer(), "connect", core_->control_options(options),
          [engine = core_.get(),
           uri = std::move(*uri)](const ControlLimits& limits) -> Result<Session> {
            auto session = engine->connect(uri, limits);
            if (!session) return session.error();
            return Session{std::move(*session)};
          }};
}

ControlOptions Engine::control_options(const ControlOptions& options) const {
  return core_ == nullptr ? options : core_->control_options(options);
}

AsyncControl<Status> Session::async_settled(std::chrono::nanoseconds deadline,
                                            const ControlOptions& options) const {
  if (core_ == nullptr) return AsyncControl<Status>{closed("settled", core_)};
  return settle_later(core_.pointer(), deadline, options);
}

Result<ReopenedRegion> Region::reopen() const {
  if (core_ == nullptr) return closed("reopen", core_);
  return reopen_now(*core_, {});
}

AsyncControl<Result<ReopenedRegion>> Region::async_reopen(const ControlOptions& options) const {
  if (core_ == nullptr) return AsyncControl<Result<ReopenedRegion>>{closed("reopen", core_)};
  EngineServices& engine = core_->session().engine();
  return {
      engine.shared_from_this(), "reopen", engine.control_options(options),
      [core = core_.pointer()](const ControlLimits& limits) { return reopen_now(*core, limits); }};
}

AsyncControl<Result<Region>> Region::async_fence(const ControlOptions& options) const {
  if (core_ == nullptr) return AsyncControl<Result<Region>>{closed("fence", core_)};
  EngineServices& engine = core_->session().engine();
  return {engine.shared_from_this(), "fence", engine.control_options(options),
          [region = *this](const ControlLimits& /*limits*/) { return region.fence(); }};
}

AsyncControl<Status> Region::async_settled(std::chrono::nanoseconds deadline,
                                           const ControlOptions& options) const {
  if (core_ == nullptr) return AsyncControl<Status>{closed("settled", core_)};
  return settle_later(core_->session().shared_from_this(), deadline, options);
}

}  // namespace remora
