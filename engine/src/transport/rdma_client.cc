#include "transport/transport.h"
namespace remora::transport {
Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions&,
                                                     Deadline) {
  return Error{Code::kUnsupported, "connect over rdma"}.with_subject(uri.host);
}
}  // namespace remora::transport
