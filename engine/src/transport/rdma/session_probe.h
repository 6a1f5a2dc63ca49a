#pragma once

/// Whether a server can serve clients over rdma now: found out by making what one client needs.

#include <span>

#include <remora/result.h>
#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// Makes the buffers and queue pairs of one client's control channel and of one of its lanes, and
/// gives them back. **Blocks** for milliseconds. Errors: why no client could be served (see
/// Reason::kMemlock).
Status probe_session(const verbs::Device& device);

/// The same on several devices, of which one that can serve is enough; the error is that of the
/// first. kNotFound: there is none.
Status probe_session(std::span<const verbs::Device> devices);

}  // namespace remora::transport::rdma
