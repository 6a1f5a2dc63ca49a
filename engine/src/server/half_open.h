#pragma once

/// Sessions that have not said who they are: bounded, and the oldest goes first.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "server/server_session.h"

namespace remora::detail {

/// Control thread only.
class HalfOpen {
 public:
  /// One more, of `most`; the id of the one that has to go for it, if there are too many.
  std::optional<std::uint64_t> add(const std::shared_ptr<ServerSession>& session,
                                   std::size_t most) {
    waiting_.push_back(session);
    if (waiting_.size() <= most) return std::nullopt;
    std::erase_if(waiting_, [](const std::weak_ptr<ServerSession>& each) {
      const auto alive = each.lock();
      return alive == nullptr || alive->greeted();
    });
    if (waiting_.size() <= most) return std::nullopt;
    const auto oldest = waiting_.front().lock();
    waiting_.pop_front();
    return oldest == nullptr ? std::nullopt : std::optional{oldest->id()};
  }

 private:
  std::deque<std::weak_ptr<ServerSession>> waiting_;  ///< in the order of their arrival
};

}  // namespace remora::detail
