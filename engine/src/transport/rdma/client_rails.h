#pragma once

/// The rails of one connection of a client's session: the devices that its lanes use.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/connector.h>

#include "base/clock.h"
#include "transport/rail_choice.h"
#include "transport/rail_plan.h"
#include "transport/rails.h"
#include "transport/rdma/client_domain.h"
#include "transport/rdma/rail_domain.h"

namespace remora::transport::rdma {

/// One rail, with everything that is needed to open a lane on it.
struct ClientRail {
  verbs::Address peer;
  std::shared_ptr<ClientDomain> domain;
  std::size_t column = 0;  ///< the device's column in the table of local keys
  std::shared_ptr<const LaneRail> shown;
  std::optional<verbs::Address> source{};  ///< local address of connections; none: by route
};

/// Thread safety: find(), of_lane() and set_failed() by the thread that opens lanes; look() by the
/// thread that receives; the rest by any thread.
class ClientRails {
 public:
  struct Options {
    verbs::ConnectorOptions route{};
    std::uint16_t port = 0;
    bool hardware_only = false;
    const verbs::Provider* provider = &verbs::Provider::system();
  };
  /// The rail over `device` to `peer`, whose name is `server_device`, empty if unknown. **Blocks**
  /// while memory is registered. Errors: those of RailDomain::add().
  static Result<ClientRail> make_rail(RailDomain& memory, std::shared_ptr<ClientDomain> device,
                                      const verbs::Address& peer, std::string server_device);
  /// Names of the host's devices that may be rails.
  [[nodiscard]] static std::vector<std::string> usable_devices(const RailChoice& choice,
                                                               const Options& options);
  struct Route {
    verbs::Connector connector;
    std::optional<verbs::Address> source{};  ///< see ClientRail
  };
  /// A route for a connection to `peer`: the host's route, if it answers in half of the time and
  /// leads over a device of the choice; otherwise a route from an address of another device.
  /// Devices in `tried` are not used. **Blocks** until `deadline`. Errors: those of resolve_over().
  static Result<Route> route_to(const verbs::Address& peer, const RailChoice& choice,
                                const std::vector<std::string>& tried, Deadline deadline,
                                const Options& options);

  /// The rails of a connection over `device` to `peer`. Null: the session stays on that device,
  /// since `plan` is null or the device can be no rail. `source`: see ClientRail. **Blocks** while
  /// memory is registered. Errors: those of RailDomain::of_process() and of make_rail().
  static Result<std::unique_ptr<ClientRails>> of_connection(
      const std::shared_ptr<RailPlan>& plan, const std::shared_ptr<ClientDomain>& device,
      const verbs::Address& peer, const std::optional<verbs::Address>& source,
      const Options& options);

  /// `first`: the rail of the control channel.
  ClientRails(std::shared_ptr<RailPlan> plan, std::shared_ptr<RailDomain> memory, ClientRail first,
              Options options)
      : plan_{std::move(plan)},
        memory_{std::move(memory)},
        options_{options},
        first_address_{first.peer.host()},
        rails_{std::move(first)},
        turns_{0} {}

  [[nodiscard]] RailPlan& plan() const noexcept { return *plan_; }
  [[nodiscard]] const std::shared_ptr<RailDomain>& memory() const noexcept { return memory_; }

  /// Looks for as many rails as the plan allows: the first rail, and a rail for each further
  /// address of the server that answers, over another local device if one reaches the address.
  /// Returns the number of rails, counting those that do not answer now: at least 1. **Blocks**, at
  /// most for a quarter of the time until `deadline`, which the addresses and devices share.
  std::size_t find(Deadline deadline);
  /// The rails over which to try to open a lane, in order, until one succeeds: first the rail that
  /// rails_of_lanes() assigns; rails that have failed since they were found are last. At least one.
  [[nodiscard]] std::vector<ClientRail> of_lane(std::size_t lane) const;
  /// A lane could not be opened over `rail`. `refused`: the server does not take a lane there.
  void set_failed(const ClientRail& rail, bool refused);

  /// Asks a failed address whether it can be reached again, without waiting for the answer. Each
  /// call takes at most one step of that: resolving the address, then the route.
  void look(Clock::time_point now = Clock::now()) noexcept;

 private:
  struct Probe {
    std::string address;
    verbs::Resolver resolver;
  };
  [[nodiscard]] Result<ClientRail> find_over(const RailAddress& to, Deadline deadline) const;
  [[nodiscard]] Result<std::shared_ptr<ClientDomain>> take_device(const verbs::Connector& route,
                                                                  const verbs::Address& peer) const;
  [[nodiscard]] bool uses(std::string_view device) const noexcept;
  [[nodiscard]] bool uses_server_device(std::string_view device) const noexcept;
  [[nodiscard]] std::vector<std::string> unused_devices() const;
  [[nodiscard]] Result<Route> find_route(const verbs::Address& peer, Deadline deadline) const;
  void take_turns();

  const std::shared_ptr<RailPlan> plan_;
  const std::shared_ptr<RailDomain> memory_;
  const Options options_;
  const std::string first_address_;
  std::vector<ClientRail> rails_;
  std::vector<RailAddress> homes_;
  std::vector<std::size_t> turns_;  ///< by lane: an index into rails_
  std::optional<Probe> probe_;      ///< used by the thread that receives
};

}  // namespace remora::transport::rdma
