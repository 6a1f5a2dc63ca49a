#pragma once

namespace remora::detail {

/// A queue that may have taken operations of a grant and not handed them over to a lane.
class RevocationListener {
 public:
  virtual ~RevocationListener() = default;
  /// A grant has been revoked: the owner's next call of the queue refuses the operations that it
  /// has taken for the grant and not handed over. False: a call is under way; ask again. Any
  /// thread.
  [[nodiscard]] virtual bool request_refusal() noexcept = 0;
};

}  // namespace remora::detail
