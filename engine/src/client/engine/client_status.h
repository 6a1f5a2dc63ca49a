#pragma once

/// The sessions and regions of a client, as JSON.

#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/metrics/http_endpoint.h>

#include "client/engine/shared_sessions.h"

namespace remora::detail {

/// See Engine::status_json(). `sessions`: all sessions of the engine, ordered by their keys.
[[nodiscard]] std::string client_status_json(const EngineOptions& options,
                                             std::vector<SharedSessions::Keyed> sessions,
                                             const metrics::StatusQuery& query);

}  // namespace remora::detail
