#include "transport/rdma/server_lane.h"

#include "transport/rdma/wrong_completion.h"

namespace remora::transport::rdma {

Result<Notice> ServerLane::notice_of(const verbs::Completion& completion) const {
  if (completion.id() >= kNoticeReceives) return wrong_completion(queue.device(), completion);
  if (completion.length_bytes() != kNoticeWireBytes)
    return Error{Code::kProtocol, "lane"}.with_subject("no notice of ours");
  return notice_from_wire((*buffers)[completion.id()]);
}

}  // namespace remora::transport::rdma
