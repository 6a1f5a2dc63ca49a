#pragma once

/// Destruction of lanes that takes longer than the shutdown of their session.

namespace remora::transport {

/// Destroys the lanes that ServerEndpoint::shutdown() has ended, which may take a device seconds:
/// see ServerEndpoint::delayed_destruction().
class DelayedDestruction {
 public:
  virtual ~DelayedDestruction() = default;
  /// Begins to destroy the lanes that shutdown() has ended, and returns without waiting.
  /// Idempotent; worker.
  virtual void destroy_lanes() noexcept = 0;
  /// Blocks until all lanes that destroy_lanes() began to destroy are destroyed. Worker.
  virtual void await_destroyed() noexcept = 0;
  /// True: shutdown() could not end a lane, which may serve requests until it is destroyed. Any
  /// thread.
  [[nodiscard]] virtual bool lanes_may_serve() const noexcept = 0;
};

}  // namespace remora::transport
