#pragma once

/// One message of a session's control channel, as a transport carries it.

#include <cstddef>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/limits.h"

namespace remora::transport {

/// Length limit of a message. Each transport keeps room for this many unanswered requests.
using control::kMaxControlMessageBytes;
using control::kMaxControlRequests;

/// At most kMaxControlMessageBytes bytes. Descriptors travel over shm only; the message owns them.
struct ControlMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;
};

}  // namespace remora::transport
