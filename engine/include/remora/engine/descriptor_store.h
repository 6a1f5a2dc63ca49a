#pragma once

/// The store in which a server leaves its memory for the next process.

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
/// The supervisor must wait for the end of this process before it starts the next one: until then
/// an RDMA device may still execute requests that clients have sent to this process.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  /// The descriptors that earlier processes have stored; called once. The caller closes them; they
  /// stay stored. Blocks while the supervisor sends them. Errors: kSystem, kProtocol.
  virtual Result<std::vector<StoredDescriptor>> take() = 0;
  /// Stores a descriptor of the file of `fd`, under a name that is not in use. The caller keeps
  /// `fd`. Blocks while the supervisor does not read. Errors: kSystem, kTimedOut; kLimitExceeded:
  /// the store takes no more.
  virtual Status store(std::string_view name, int fd) = 0;
  /// Removes the descriptors of that name. A failure is logged.
  virtual void remove(std::string_view name) noexcept = 0;
};

}  // namespace remora
