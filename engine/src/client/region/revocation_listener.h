#pragma once

namespace remora::detail {

/// A queue that may have taken operations of a grant and not submitted them to a lane. The grant
/// does not own it.
class RevocationListener {
 public:
  virtual ~RevocationListener() = default;
  /// Called after a grant was revoked: the owner's next call of the queue refuses the operations of
  /// the grant that it has taken and not submitted. False: the owner is in a call of the queue; ask
  /// again. Any thread.
  [[nodiscard]] virtual bool request_refusal() noexcept = 0;
};

}  // namespace remora::detail
