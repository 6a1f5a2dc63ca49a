#pragma once

/// Connects a client to a server over one transport. Each transport defines its own function.

#include <memory>
#include <string>
#include <string_view>

#include <remora/config/rdma_settings.h>
#include <remora/engine/types.h>
#include <remora/engine/uri.h>
#include <remora/result.h>

#include "base/clock.h"
#include "transport/client_endpoint.h"
#include "transport/rail_plan.h"
#include "transport/session_domain.h"

namespace remora::transport {

struct ConnectOptions {
  std::string device;  ///< rdma: use this device whatever the route says; empty: any device
  /// rdma: set when the session uses several devices; null: it uses one. The connections of a
  /// session share it.
  std::shared_ptr<RailPlan> rails{};
  /// rdma: set when the session continues over another device once its own has gone; null: it waits
  /// for its device. The connections of a session share it.
  std::shared_ptr<SessionDomain> domain{};
  bool hardware_only = false;
  bool payload_crc = false;     ///< tcp: checksums of data, beside those of the frames
  config::RdmaSettings rdma{};  ///< rdma: settings of the fabric
  bool core_dump = false;       ///< shm: core dumps of this process contain the mapped memory
  Populate populate = Populate::kLazy;  ///< shm: how mapped memory is populated
};

/// Connects over the transport `kind`, which is not kAuto, by the function of that transport below.
Result<std::unique_ptr<ClientEndpoint>> connect(TransportKind kind, const Uri& uri,
                                                const ConnectOptions& options, Deadline deadline);

/// Whether connect_shm() can reach a server at `host`: one of its addresses is this machine's, in
/// this network namespace. **Blocks** while a name is resolved, at most until `deadline`.
[[nodiscard]] bool shm_reaches(std::string_view host, Deadline deadline);

/// Each of these functions blocks, at most until `deadline`. Any thread. Errors:
/// kConnectionRefused, kUnreachable, kTimedOut, kNotFound (no device), kUnsupported,
/// kPermissionDenied.

/// Connects only to a server that listens at the URI's host and port, on this host and in this
/// network namespace.
Result<std::unique_ptr<ClientEndpoint>> connect_shm(const Uri& uri, Deadline deadline,
                                                    const ConnectOptions& options = {});
Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions& options,
                                                     Deadline deadline);
/// Tries every address of the host, each for its share of the time.
Result<std::unique_ptr<ClientEndpoint>> connect_tcp(const Uri& uri, const ConnectOptions& options,
                                                    Deadline deadline);

}  // namespace remora::transport
