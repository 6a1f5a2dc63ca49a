#pragma once

/// The end of lanes that takes longer than the shutdown of their session.

namespace remora::transport {

/// Destroys the lanes that ServerEndpoint::shutdown() has ended, which may take a device seconds:
/// see ServerEndpoint::delayed_destruction().
class DelayedDestruction {
 public:
  virtual ~DelayedDestruction() = default;
  /// Begins to destroy the lanes that shutdown() has ended. Does not wait for that. Idempotent;
  /// worker.
  virtual void destroy_lanes() noexcept = 0;
  /// Blocks until the lanes that destroy_lanes() was called for are destroyed. Worker.
  virtual void await_destroyed() noexcept = 0;
  /// shutdown() could not end a lane, which serves until it is destroyed. Any thread.
  [[nodiscard]] virtual bool lanes_may_serve() const noexcept = 0;
};

}  // namespace remora::transport
