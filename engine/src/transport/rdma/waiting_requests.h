#pragma once

/// Connection requests that wait for the server: those of lanes before those of new connections,
/// and of each kind the newest first. After kMaxOvertaking lanes the newest of the others has its
/// turn, since any program can ask for lanes.
///
/// When very many clients connect at once, the server is slower than they are, and each client has
/// a time-out. In the order of arrival the server would serve requests that have timed out, whose
/// clients have sent new ones: no client would ever connect. A lane comes first because its client
/// is a session already, and all that was done for it is lost if the lane times out.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/listener.h>

#include "base/unique_fd.h"

namespace remora::transport::rdma {

/// Which requests take() may return.
enum class WhichRequest : std::uint8_t { kAny, kLane };

/// Used by one thread at a time.
class WaitingRequests {
 public:
  /// More requests wait in the kernel, which has room for as many.
  static constexpr std::size_t kMax = 1024;

  /// Errors: kSystem.
  static Result<WaitingRequests> create();

  /// Readable while a request waits.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] bool full() const noexcept { return lanes_.size() + others_.size() >= kMax; }
  [[nodiscard]] bool empty() const noexcept { return lanes_.empty() && others_.empty(); }
  void add(verbs::WaitingRequest request);
  /// The request to serve next. Requests that their clients have withdrawn are dropped, but not
  /// more than kMaxLooks of them in one call: empty does not mean that none waits.
  [[nodiscard]] std::optional<verbs::WaitingRequest> take(WhichRequest which) noexcept;
  static constexpr std::size_t kMaxLooks = 16;
  static constexpr std::uint32_t kMaxOvertaking = 16;
  /// Drops the requests over a device, which are rejected.
  void drop(std::string_view device) noexcept;

 private:
  explicit WaitingRequests(UniqueFd event) noexcept : event_{std::move(event)} {}
  void show() noexcept;

  UniqueFd event_;
  bool shown_ = false;            ///< event_ is readable
  std::uint32_t overtaking_ = 0;  ///< lanes taken since another request waits
  /// The newest at the end.
  std::vector<verbs::WaitingRequest> lanes_;
  std::vector<verbs::WaitingRequest> others_;
};

}  // namespace remora::transport::rdma
