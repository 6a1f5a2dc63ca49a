#include "transport/rdma/wrong_completion.h"

#include <string>

#include "base/log.h"

namespace remora::transport::rdma {

Error wrong_completion(const verbs::Device& device, const verbs::Completion& completion) {
  const std::string name{device.name()};
  log::warn({"device.wrong_completion", "device request length_bytes"},
            "rdma: {}: the device has completed request {} with {} bytes, which is not posted; the "
            "connection ends",
            name, completion.id(), completion.length_bytes());
  return Error{Code::kProvider, "ibv_poll_cq"}.with_subject(
      name + " completed request " + std::to_string(completion.id()) + ", which is not posted");
}

}  // namespace remora::transport::rdma
