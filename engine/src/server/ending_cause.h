#pragma once

/// The cause that a client is told when the server ends its session.

#include <optional>

#include <remora/result.h>

#include "server/server_metrics.h"

namespace remora::detail {

struct EndingCause {
  Code code;
  Reason reason;
  const char* subject;
};

/// None where the client knows the cause, has gone, or was never admitted.
[[nodiscard]] std::optional<EndingCause> ending_cause(ServerMetrics::SessionEnd why) noexcept;

}  // namespace remora::detail
