#pragma once

#include <remora/result.h>
#include <remora/verbs/verbs.h>

namespace remora::transport::rdma {

/// The error of a completion that no posted request can have: its device or driver is at fault.
/// Logs it. The caller uses neither the id nor the length of `completion`, and ends the connection.
[[nodiscard]] Error wrong_completion(const verbs::Device& device,
                                     const verbs::Completion& completion);

}  // namespace remora::transport::rdma
