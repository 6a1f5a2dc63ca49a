#pragma once

/// How the server of a session is reached.

#include <functional>
#include <memory>
#include <string>

#include <remora/result.h>

#include "base/clock.h"
#include "transport/client_endpoint.h"

namespace remora::detail {

/// Connects to the server of one session, as often as it is called.
struct Dial {
  std::string server;  ///< "host:port"
  std::function<Result<std::unique_ptr<transport::ClientEndpoint>>(Deadline)> connect;
};

}  // namespace remora::detail
