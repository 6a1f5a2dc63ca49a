#pragma once

/// A server in the client's own thread: answers control requests with one region of one extent, and
/// gives the lane that it was made with.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/engine/engine_core.h"
#include "client/session/session_core.h"
#include "protocol/messages.h"
#include "transport/client_endpoint.h"
#include "transport/connection_rails.h"
#include "transport/memory_domain.h"

namespace remora::transport {

class FakeServerEndpoint final : public ClientEndpoint, private ConnectionRails {
 public:
  struct Offer {
    std::unique_ptr<Lane> lane;
    /// given from the front, where `lane` is null
    std::vector<std::unique_ptr<Lane>> more_lanes{};
    /// The lane, where the server has a key for each.
    std::function<std::unique_ptr<Lane>(std::shared_ptr<RkeyTable>)> lane_of_keys{};
    std::shared_ptr<MemoryDomain> domain;
    std::optional<DirectPath> direct;
    std::span<std::byte> memory;  ///< the region's
    bool rails = false;           ///< lanes may go over several devices
    /// With rails: hears the server's device on the connection, before the lanes are opened.
    std::function<void(const std::string& device)> device_told{};
  };
  explicit FakeServerEndpoint(Offer offer);

  [[nodiscard]] TransportKind kind() const noexcept override {
    return offer_.direct ? TransportKind::kShm : TransportKind::kRdma;
  }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  Status send(ControlMessage message, Deadline deadline) noexcept override;
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override;
  [[nodiscard]] std::optional<DirectPath> direct_path() const noexcept override {
    return offer_.direct;
  }
  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket&, std::uint32_t,
                                          Deadline) noexcept override {
    if (offer_.lane != nullptr || offer_.more_lanes.empty()) return std::move(offer_.lane);
    std::unique_ptr<Lane> first = std::move(offer_.more_lanes.front());
    offer_.more_lanes.erase(offer_.more_lanes.begin());
    return first;
  }
  [[nodiscard]] ConnectionRails* rails() noexcept override { return offer_.rails ? this : nullptr; }
  void learn_rails(const std::string& device, const std::vector<RailAddress>& /*told*/) override {
    if (offer_.device_told) offer_.device_told(device);
  }
  std::size_t find_rails(Deadline) override { return 1; }
  bool leave_rail_of(std::size_t) override { return false; }
  bool leave_other_server() override { return false; }
  void rail_failed(std::size_t) override {}
  [[nodiscard]] bool rail_returned() const noexcept override { return false; }
  Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept override {
    offer_.lane = offer_.lane_of_keys(std::move(keys));
    return {};
  }
  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    return offer_.domain;
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents, std::vector<UniqueFd>,
                               Rights) noexcept override {
    return AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void shutdown() noexcept override {}

 private:
  control::Reply answer(const control::Request& request) const;

  Offer offer_;
  std::string device_ = "fake0";
  UniqueFd event_;
  std::mutex mutex_;
  std::vector<ControlMessage> answers_;
};

std::shared_ptr<detail::SessionCore> start_fake_session(
    const std::shared_ptr<detail::EngineCore>& engine, FakeServerEndpoint::Offer offer);

/// A region "r" of that memory, opened with all rights.
Region open_fake_region(const std::shared_ptr<detail::EngineCore>& engine,
                        FakeServerEndpoint::Offer offer);

}  // namespace remora::transport
