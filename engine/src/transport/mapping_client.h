#pragma once

#include <cstdint>

namespace remora::transport {

/// A client that maps the memory of its grants: its access ends only with its process. See
/// ServerEndpoint::mapping_client().
class MappingClient {
 public:
  virtual ~MappingClient() = default;
  /// True: the process has ended. False: it lives, or the kernel does not tell. Any thread.
  [[nodiscard]] virtual bool has_exited() const noexcept = 0;
  /// The client's process id as this process sees it; 0: not visible. Any thread.
  [[nodiscard]] virtual std::uint64_t process_id() const noexcept = 0;
};

}  // namespace remora::transport
