#pragma once

/// The connection of one of the client's lanes.

#include <memory>
#include <optional>
#include <utility>

#include <remora/mutex.h>
#include <remora/verbs/verbs.h>

#include "base/fd_set.h"
#include "transport/rdma/client_domain.h"
#include "transport/rdma/reaper.h"

namespace remora::transport::rdma {

/// A lane's connection, which two threads use: the thread of the lane posts and destroys, the
/// control thread takes events.
struct LaneConnection {
  LaneConnection(std::shared_ptr<FdSet> events_of_session, const verbs::Address& to,
                 verbs::Connection made) noexcept
      : events{std::move(events_of_session)}, peer{to}, connection{std::move(made)} {}

  const std::shared_ptr<FdSet> events;  ///< the descriptors of its session
  const verbs::Address peer;
  remora::detail::Mutex mutex;  ///< no event is taken while the connection is destroyed
  std::optional<verbs::Connection> connection REMORA_GUARDED_BY(mutex);

  /// Adds the connection's events to those that the control thread waits for. Errors: kSystem.
  Status watch() {
    const remora::detail::MutexLock lock{mutex};
    return events->add(connection->event_fd());
  }
  /// The lane posts on the queue pair without the lock, and destroys the connection itself.
  [[nodiscard]] verbs::QueuePair<verbs::Rc>* queue_pair() {
    const remora::detail::MutexLock lock{mutex};
    return &connection->queue_pair();
  }

  void to_error() noexcept {
    const remora::detail::MutexLock lock{mutex};
    if (connection) (void)connection->queue_pair().to_error();
  }
  /// Destroys the connection. Only the caller is blocked while the device does that.
  void destroy() noexcept { const std::optional<verbs::Connection> gone = leave(); }
  void close_later(ClientDomain& domain) noexcept {
    if (auto gone = leave()) domain.reaper().take(std::move(*gone));
  }

 private:
  /// Removes the connection from the control thread's events, and returns it.
  std::optional<verbs::Connection> leave() noexcept {
    const remora::detail::MutexLock lock{mutex};
    if (connection) events->remove(connection->event_fd());
    return std::exchange(connection, std::nullopt);
  }
};

}  // namespace remora::transport::rdma
