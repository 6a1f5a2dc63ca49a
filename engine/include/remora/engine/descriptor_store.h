#pragma once

/// Where a server leaves its memory for the process that follows it.

#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora {

/// A file descriptor and the name under which it is stored.
struct StoredDescriptor {
  std::string name{};
  int fd = -1;
};

/// Keeps file descriptors beyond the life of this process: a service manager, or another supervisor
/// that starts the next process. One server uses it, from one thread at a time.
///
/// The next process must be started only when this one has ended: the supervisor has waited for it.
/// Until then an RDMA device may still carry out what clients have sent to the process before.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  /// What earlier processes have stored, once; the caller closes the descriptors. They stay stored.
  /// Blocks while the supervisor sends them. Errors: kSystem, kProtocol.
  virtual Result<std::vector<StoredDescriptor>> take() = 0;
  /// Stores what `fd` names, under a name that is not stored. The caller keeps `fd`. Blocks while
  /// the supervisor does not read. Errors: kSystem, kTimedOut; kLimitExceeded: it keeps no more.
  virtual Status store(std::string_view name, int fd) = 0;
  /// The descriptors of that name are stored no more. A failure is logged.
  virtual void remove(std::string_view name) noexcept = 0;
};

}  // namespace remora
