#pragma once

#include <cstdint>

namespace remora::transport {

/// A client that maps the memory it is granted: only the end of its process ends its access. See
/// ServerEndpoint::mapping_client().
class MappingClient {
 public:
  virtual ~MappingClient() = default;
  /// True: the process has ended. False: it lives, or the kernel does not tell. Any thread.
  [[nodiscard]] virtual bool has_exited() const noexcept = 0;
  /// As this process sees it; 0: it does not. Any thread.
  [[nodiscard]] virtual std::uint64_t process_id() const noexcept = 0;
};

}  // namespace remora::transport
