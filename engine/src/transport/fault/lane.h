#pragma once

/// A lane with faults: lost, late, held or out of order, as FaultCore says.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd_set.h"
#include "base/unique_fd.h"
#include "transport/fault/core.h"

namespace remora::transport {

/// Posts requests on the real lane, unless a fault loses them, and reports their completions when
/// they are due, in the order in which they were posted. When the lane ends, requests that it has
/// not reported are lost; it reports them when the real lane no longer accesses their memory.
/// exception: Request is the record of one request.
class FaultLane final : public Lane {
 public:
  /// Errors: kSystem.
  static Result<std::unique_ptr<Lane>> create(std::shared_ptr<detail::FaultCore> core,
                                              std::shared_ptr<detail::FaultLink> link,
                                              std::unique_ptr<Lane> real);
  FaultLane(std::shared_ptr<detail::FaultCore> core, std::shared_ptr<detail::FaultLink> link,
            std::unique_ptr<Lane> real, std::shared_ptr<detail::FaultBell> bell, UniqueFd timer,
            FdSet events);
  ~FaultLane() override { close(); }

  [[nodiscard]] const Limits& limits() const noexcept override { return real_->limits(); }
  [[nodiscard]] std::shared_ptr<const LaneRail> rail() const noexcept override {
    return real_->rail();
  }
  PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept override;
  void count_inline(metrics::Recorder recorder, metrics::Counter counter) noexcept override {
    real_->count_inline(recorder, counter);
  }
  std::size_t poll(std::span<LaneCompletion> completions) noexcept override;
  [[nodiscard]] std::span<const std::uint64_t> atomic_results() const noexcept override {
    return results_;
  }
  Status arm() noexcept override { return real_->arm(); }
  void drain_events() noexcept override;
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }
  void move_to_error() noexcept override;
  void close() noexcept override;
  void close_later() noexcept override;
  [[nodiscard]] std::uint32_t completion_capacity() const noexcept override {
    return real_->completion_capacity();
  }

 private:
  /// A request that was posted and has not been reported.
  struct Request {
    bool sent = false;
    bool known = false;  ///< it is reported by the real lane, or was never sent
    bool hold = false;
    bool held_counted = false;
    CompletionStatus status = CompletionStatus::kSuccess;
    std::uint32_t vendor_error = 0;
    std::uint64_t releases = 0;  ///< value of FaultCore::releases() when it was posted
    std::chrono::nanoseconds delay{0};
    Deadline due = Deadline::min();
  };
  [[nodiscard]] Request& at(std::uint64_t sequence) noexcept { return requests_[sequence & mask_]; }
  [[nodiscard]] bool lost() const noexcept { return lost_ || link_->cut.load(); }
  void swallow(std::uint64_t first_sequence, std::size_t count) noexcept;
  bool put_in_order(Chain chain, std::size_t sent, std::size_t judged) noexcept;
  PostOutcome send(std::uint64_t first_sequence, std::size_t sent, bool reordered) noexcept;
  void absorb() noexcept;
  void settle(std::uint64_t place, CompletionStatus status, std::uint32_t vendor_error) noexcept;
  [[nodiscard]] bool comes_through(Request& request, Clock::time_point now) noexcept;
  std::size_t report_lost(std::span<LaneCompletion> completions) noexcept;
  void count_lost(const Request& request) noexcept;
  void set_timer(Deadline due) noexcept;
  [[nodiscard]] bool leave() noexcept;

  std::shared_ptr<detail::FaultCore> core_;
  std::shared_ptr<detail::FaultLink> link_;
  std::unique_ptr<Lane> real_;
  std::shared_ptr<detail::FaultBell> bell_;
  UniqueFd timer_;
  FdSet events_;
  detail::FaultSampler sampler_;
  detail::FaultSampler order_sampler_;

  std::vector<Request> requests_;  // by sequence & mask_, as the next two
  std::uint64_t mask_;
  std::vector<std::uint64_t> sequence_at_;  ///< by the real lane's sequence
  std::vector<std::uint64_t> results_;
  std::vector<detail::FaultVerdict> verdicts_;  // of a chain, as are the next two members
  std::vector<std::uint32_t> order_;
  std::vector<const WorkRequest*> chain_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t reported_ = 0;  ///< sequence after the last one reported
  std::uint64_t real_end_ = 0;  ///< sequence after the last one sent
  /// sequence after the last of these that the real lane has reported
  std::uint64_t real_done_ = 0;
  Deadline timer_due_ = Deadline::min();
  bool lost_ = false;  ///< a fault ended the lane; nothing is sent any more
  bool cuts_ = false;  ///< cuts the connection once all sent requests are done
  bool loss_reported_ = false;
  bool closed_ = false;
  std::atomic<bool> in_error_{false};
};

}  // namespace remora::transport
