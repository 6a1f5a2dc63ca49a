/// A connection with faults: refused, lost, or silent.

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/fd_set.h"
#include "transport/fault/core.h"
#include "transport/fault/lane.h"

namespace remora::transport {

using detail::FaultBell;
using detail::FaultCore;
using detail::FaultLink;
using detail::FaultSampler;

namespace {

class FaultEndpoint final : public ClientEndpoint {
 public:
  static Result<std::unique_ptr<ClientEndpoint>> create(std::shared_ptr<FaultCore> core,
                                                        std::unique_ptr<ClientEndpoint> real) {
    const auto bell = std::make_shared<FaultBell>();
    if (!*bell) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
    auto events = FdSet::create();
    if (!events) return events.error();
    for (const int fd : {real->event_fd(), bell->event()})
      if (auto status = events->add(fd); !status) return status.error();
    return std::unique_ptr<ClientEndpoint>{std::make_unique<FaultEndpoint>(
        std::move(core), std::move(real), bell, std::move(*events))};
  }
  FaultEndpoint(std::shared_ptr<FaultCore> core, std::unique_ptr<ClientEndpoint> real,
                std::shared_ptr<FaultBell> bell, FdSet events)
      : core_{std::move(core)},
        real_{std::move(real)},
        bell_{std::move(bell)},
        events_{std::move(events)},
        sampler_{core_->seed(), FaultSampler::Place::kAnswer, core_->counts().connects} {
    link_->endpoint = real_;
    core_->add_bell(bell_);
    core_->add_link(link_);
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return real_->kind(); }
  [[nodiscard]] const std::string& device() const noexcept override { return real_->device(); }
  Status send(ControlMessage message, Deadline deadline) noexcept override {
    return real_->send(std::move(message), deadline);
  }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override;
  void flush(Deadline deadline) noexcept override { real_->flush(deadline); }
  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                          Deadline deadline) noexcept override {
    auto lane = real_->open_lane(ticket, depth, deadline);
    if (!lane) return lane.error();
    return FaultLane::create(core_, link_, std::move(*lane));
  }
  Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept override {
    return real_->use_lane_keys(std::move(keys));
  }
  [[nodiscard]] ConnectionRails* rails() noexcept override { return real_->rails(); }
  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    return real_->memory_domain();
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents, std::vector<UniqueFd> descriptors,
                               Rights rights) noexcept override {
    return real_->attach(std::move(extents), std::move(descriptors), rights);
  }
  void look() noexcept override { real_->look(); }
  void shutdown() noexcept override { real_->shutdown(); }

 private:
  std::shared_ptr<FaultCore> core_;
  std::shared_ptr<ClientEndpoint> real_;
  std::shared_ptr<FaultLink> link_ = std::make_shared<FaultLink>();
  std::shared_ptr<FaultBell> bell_;
  FdSet events_;
  FaultSampler sampler_;
  /// Messages that were received and not delivered yet. At most one for each unanswered request,
  /// and one event.
  std::deque<ControlMessage> waiting_;
  std::optional<Error> ended_;  ///< the reason why nothing more comes
};

Result<std::optional<ControlMessage>> FaultEndpoint::receive() noexcept {
  while (!ended_) {
    auto message = real_->receive();
    if (!message) {
      ended_ = message.error();
      break;
    }
    if (!message->has_value()) break;
    if (core_->drops_answer(sampler_)) continue;
    if (core_->holds_answers()) core_->count(&FaultCore::Counts::answers_held);
    waiting_.push_back(std::move(**message));
  }
  // In this order: the thread that releases answers changes the flag first and rings the bell after
  // it.
  bell_->clear();
  if (!waiting_.empty() && !core_->holds_answers()) {
    std::optional<ControlMessage> first{std::move(waiting_.front())};
    waiting_.pop_front();
    if (!waiting_.empty()) bell_->ring();
    return first;
  }
  if (ended_) return *ended_;  // held messages are lost with it
  return std::optional<ControlMessage>{};
}

}  // namespace

Connect with_faults(std::shared_ptr<FaultCore> core, TransportKind kind, Connect connect) {
  return [core = std::move(core), kind, connect = std::move(connect)](
             Deadline deadline) -> Result<std::unique_ptr<ClientEndpoint>> {
    if (kind == TransportKind::kShm)
      return Error{Code::kUnsupported,
                   "connect over shm with EngineOptions::faults, for which there has to be a lane; "
                   "name tcp or rdma"};
    if (!core->lets_connect())
      return Error{Code::kConnectionRefused, "connect (a fault of testing::FaultTransport)"};
    auto real = connect(deadline);
    if (!real) return real.error();
    return FaultEndpoint::create(core, std::move(*real));
  };
}

}  // namespace remora::transport
