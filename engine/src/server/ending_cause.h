#pragma once

/// The cause that the server tells a client when it ends the client's session.

#include <optional>

#include <remora/result.h>

#include "server/server_metrics.h"

namespace remora::detail {

struct EndingCause {
  Code code;
  Reason reason;
  const char* subject;
};

/// Empty if the client knows the cause, has gone, or was never admitted.
[[nodiscard]] std::optional<EndingCause> ending_cause(ServerMetrics::SessionEnd why) noexcept;

}  // namespace remora::detail
