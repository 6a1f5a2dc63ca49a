#include "transport/connect.h"

#include <remora/assert.h>

namespace remora::transport {

Result<std::unique_ptr<ClientEndpoint>> connect(TransportKind kind, const Uri& uri,
                                                const ConnectOptions& options, Deadline deadline) {
  switch (kind) {
    case TransportKind::kShm: return connect_shm(uri, deadline, options);
    case TransportKind::kRdma: return connect_rdma(uri, options, deadline);
    case TransportKind::kTcp: return connect_tcp(uri, options, deadline);
    case TransportKind::kAuto: break;
  }
  REMORA_ASSERT(false, "the engine has chosen a transport before it connects");
  return Error{Code::kInternal, "connect"};
}

}  // namespace remora::transport
