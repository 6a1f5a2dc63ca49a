#pragma once

/// The requests of one session about regions: the client that asks, its rights, and the order in
/// which requests about one region are served.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/result.h>

#include "protocol/messages.h"
#include "server/client_registry.h"
#include "server/grant_set.h"
#include "server/memory/region_entry.h"
#include "server/revocation_coordinator.h"
#include "server/server_request.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

/// Worker only.
class RegionRequests {
 public:
  RegionRequests(ServerCore& server, ServerSession& session) noexcept
      : server_{server}, session_{session} {}

  /// Serves a request that may have to wait: until no other request uses its region, or until
  /// memory is registered. Sends the reply itself. False: the request does not have to wait.
  bool serve_in_turn(const ServerRequest& asked, const control::Request& request);
  Result<ServerReply> list(const control::ListRequest& request);
  Result<ServerReply> stat(const control::StatRequest& request);
  /// Serves all removals except REMOVAL_NOW, which serve_in_turn() serves.
  Result<ServerReply> remove(const control::RemoveRequest& request);
  Result<ServerReply> usage();
  /// Whether the client may administer the server. Errors: kNoRight, those of asker().
  [[nodiscard]] Status may_administer(Operation operation) const;
  /// Removes the regions of Lifetime::kSession.
  void remove_own();
  /// Takes over the regions of the session that this session resumes.
  void take_over(RegionRequests& before);
  /// Takes over the regions that the session created in the previous process.
  void take_over_restored();

 private:
  /// The client that asks, valid as long as `registry` lives; null with 'auth: none'.
  struct Asker {
    std::shared_ptr<const ClientRegistry> registry;
    const KnownClient* client = nullptr;
  };
  using Region = std::shared_ptr<RegionEntry>;
  using TurnJob = std::function<void(RegionRequests&, const Region&)>;

  /// Errors: kConnectionRefused: the server no longer has the client, or its key.
  [[nodiscard]] Result<Asker> asker() const;
  /// The region, if the client may know of it. Errors: kUnknownRegion, those of asker().
  Result<Region> find_permitted(const std::string& name, Permission& permission) const;
  /// `more_bytes`: bytes of the pool.
  [[nodiscard]] Status check_quota(const KnownClient& client, std::uint64_t more_bytes) const;
  [[nodiscard]] Status may_open(const RegionEntry& region, std::uint32_t rights) const;
  /// Errors: those of may_open() and GrantSet::has_room_for(); kNoRight.
  [[nodiscard]] Status may_fence(const RegionEntry& region, std::uint32_t rights) const;

  /// The error of a request for a region or a grant, other than by a fence, while the server is
  /// being drained.
  [[nodiscard]] std::optional<Error> refused_by_drain(const control::Request& request) const;
  void run_in_turn(const ServerRequest& asked, const std::string& name, TurnJob job,
                   RevocationCoordinator::Turn turn = RevocationCoordinator::Turn::kAlone);
  void create_when_there(const ServerRequest& asked, const control::CreateRequest& request);
  Result<ServerReply> create(const control::CreateRequest& request);
  /// Called in the region's turn. `then`: see GrantSet::open().
  void open(const control::OpenRequest& request, GrantSet::Opened then);
  /// The same, for GrantSet::reattach().
  void reattach(const control::ReattachRequest& request, const Region& region,
                GrantSet::Opened then);
  void remove_now(const ServerRequest& asked, const std::string& name);
  void fence(const ServerRequest& asked, const control::FenceRequest& request,
             const Region& region);
  void finish_fence(const ServerRequest& asked, const control::FenceRequest& request,
                    const Region& region, std::size_t left);
  void resize(const ServerRequest& asked, const control::ResizeRequest& request,
              const Region& region);

  ServerCore& server_;
  ServerSession& session_;
  std::vector<std::weak_ptr<RegionEntry>> own_regions_;  ///< removed when the session ends
};

}  // namespace remora::detail
