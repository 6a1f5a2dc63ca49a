#include "transport/transport.h"
namespace remora::transport {
Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig&) {
  return Error{Code::kUnsupported, "listen over rdma"};
}
}  // namespace remora::transport
