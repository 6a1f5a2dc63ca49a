#pragma once

/// The rails of one connection of a client's session: which devices its lanes go over.

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

/// One rail, with all that opening a lane on it needs.
struct ClientRail {
  verbs::Address peer;
  std::shared_ptr<ClientDomain> domain;
  std::size_t column = 0;  ///< of the keys of local memory
  std::shared_ptr<const LaneRail> shown;
  std::optional<verbs::Address> source{};  ///< here, of its connections; none: that of the route
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
  /// The rail over `device` to `peer`, whose name is `server_device`, if that is known. **Blocks**
  /// while memory is registered. Errors: those of RailDomain::add().
  static Result<ClientRail> make_rail(RailDomain& memory, std::shared_ptr<ClientDomain> device,
                                      const verbs::Address& peer, std::string server_device);
  /// Names of devices of the host that may be rails.
  [[nodiscard]] static std::vector<std::string> usable_devices(const RailChoice& choice,
                                                               const Options& options);
  struct Route {
    verbs::Connector connector;
    std::optional<verbs::Address> source{};  ///< see ClientRail
  };
  /// A route for a connection to `peer`: that of the host, if it answers in half of the time and
  /// leads over a device of the choice, else one from an address of another device. Not over the
  /// devices in `tried`. **Blocks** until `deadline`. Errors: those of resolve_over().
  static Result<Route> route_to(const verbs::Address& peer, const RailChoice& choice,
                                const std::vector<std::string>& tried, Deadline deadline,
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

  /// Looks for as many rails as the plan allows: the first one, and one over each further address
  /// of the server that answers, over another device here if there is one that reaches it. Returns
  /// how many there may be, also of those that do not answer now: at least 1. **Blocks**, at most
  /// for a quarter of the time until `deadline`, in which each address and device has its share.
  std::size_t find(Deadline deadline);
  /// The rails that a lane is to be opened over, until one takes it: first that of
  /// rails_of_lanes(); those that have failed since they were found go last. At least one.
  [[nodiscard]] std::vector<ClientRail> of_lane(std::size_t lane) const;
  /// A lane could not be opened over it. `refused`: the server takes none there.
  void set_failed(const ClientRail& rail, bool refused);

  /// Asks an address that has failed whether it is there again, without waiting for the answer.
  /// Each call takes one step of that at most: address, route.
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
  std::vector<std::size_t> turns_;  ///< of lanes: numbers of rails_
  std::optional<Probe> probe_;      ///< of the thread that receives
};

}  // namespace remora::transport::rdma
