#pragma once

/// The connection to the server of a session.

#include <functional>
#include <memory>
#include <string>

#include <remora/result.h>

#include "base/clock.h"
#include "transport/client_endpoint.h"

namespace remora::detail {

/// The address of a session's server, and the function that connects to it, also again.
struct ServerConnector {
  std::string server;  ///< "host:port"
  std::function<Result<std::unique_ptr<transport::ClientEndpoint>>(Deadline)> connect;
};

}  // namespace remora::detail
