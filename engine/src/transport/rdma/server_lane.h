#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include <remora/result.h>
#include <remora/verbs/verbs.h>

#include "transport/notice.h"
#include "transport/rdma/budget_share.h"
#include "transport/rdma/window_lane.h"
#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

/// A data queue pair, which serves without the server's CPU. Its receives take notices. They are
/// flushed when the queue pair dies, which is the only sign of its death that every device gives.
struct ServerLane {
  verbs::CompletionQueue queue;
  std::unique_ptr<std::array<NoticeBytes, kNoticeReceives>> buffers;
  BudgetShare share;
  verbs::MemoryRegion memory;           // of the buffers
  std::uint32_t number = 0;             ///< of the session's lanes, from 0
  std::shared_ptr<WindowLane> windows;  ///< null: grants are registrations
  std::optional<verbs::Connection> connection;
  Status end{};          ///< the first error on it
  bool flushed = false;  ///< a receive has failed, so no later receive succeeds
  bool watched = true;   ///< the endpoint's set contains its descriptors

  Status post_receive(verbs::QueuePair<verbs::Rc>& pair, std::uint64_t index) const {
    return pair.post_receive(index, memory.slice(index * kNoticeWireBytes, kNoticeWireBytes));
  }
  /// The notice of a receive that has succeeded. Errors: kProtocol: the client has sent something
  /// else; kProvider: the device has completed what is not posted.
  [[nodiscard]] Result<Notice> notice_of(const verbs::Completion& completion) const;
};

}  // namespace remora::transport::rdma
