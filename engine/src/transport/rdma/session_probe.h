#pragma once

/// Finds out whether a server can serve clients over rdma now, by making the objects that one
/// client needs.

#include <span>

#include <remora/result.h>
#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// Makes the buffers and queue pairs of one client's control channel and of one of its lanes, and
/// destroys them. **Blocks** for milliseconds. Errors: the reason why no client could be served
/// (see Reason::kMemlock).
Status probe_session(const verbs::Device& device);

/// The same on several devices: success if one of them can serve, otherwise the error of the first
/// device. kNotFound: `devices` is empty.
Status probe_session(std::span<const verbs::Device> devices);

}  // namespace remora::transport::rdma
