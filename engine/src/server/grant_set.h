#pragma once

/// The grants of one session: the open grants, the grants that the server took back, and the room
/// that the session reserves for unfinished fences and opens.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <remora/result.h>

#include "protocol/messages.h"
#include "server/grant_names.h"
#include "server/grant_renewal.h"
#include "server/memory/region_entry.h"
#include "server/memory/region_memory.h"
#include "server/server_metrics.h"
#include "server/server_request.h"
#include "transport/grant.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

/// The grants of one session. Worker only, except open_count() and names(). exception: OpenGrant
/// and PendingOpen, which have most of the members, are records of single grants.
class GrantSet {
 public:
  GrantSet(ServerCore& server, ServerSession& session) noexcept
      : server_{server}, session_{session} {}
  ~GrantSet();
  GrantSet(const GrantSet&) = delete;
  GrantSet& operator=(const GrantSet&) = delete;

  /// The grants that the session gives up before it gets a new grant of the region.
  enum class Before : std::uint8_t { kNothingGoes, kThoseOfTheRegionGo };
  /// Errors: kLimitExceeded, naming the limit of one session.
  [[nodiscard]] Status has_room_for(const RegionEntry& region, Before before) const;
  /// Reserves room for the grant of an unfinished fence or open, until give_back_room().
  void reserve_room(std::uint64_t region_bytes) noexcept;
  void give_back_room(std::uint64_t region_bytes) noexcept;

  using Opened = GrantRenewal::Then;
  /// Grants `rights` on the region. The caller has opened the region in the catalog; open() closes
  /// it there when the grant fails. `then` gets the reply, with the first page of extents: before
  /// open() returns or, if the memory must be registered first, later, as a job of the worker. It
  /// is not called once the session is over. Called in the region's turn. Errors: those of
  /// ServerEndpoint::grant().
  void open(const std::shared_ptr<RegionEntry>& region, Rights rights, Opened then);
  /// Gives the client again a grant that it has from the previous process; another call changes
  /// nothing. As open(). Errors: also kAccessRefused, with the reason: the grant has ended.
  void reattach(const std::shared_ptr<RegionEntry>& region, const control::ReattachRequest& request,
                Opened then);
  /// Whether the session has this grant, of this region.
  [[nodiscard]] bool has(std::uint64_t grant_id, const RegionEntry& region) const;
  /// See GrantNames::avoid(): a close request for the id must not reach another grant.
  void avoid(std::uint64_t grant_id) { names_.avoid(grant_id); }
  /// The reason why the server took the grant back; empty: it did not.
  [[nodiscard]] std::optional<Reason> taken(std::uint64_t grant_id) const;
  /// Returns a page of extents. The first page also makes the keys of lanes that have none yet: see
  /// LaneKeyRenewal. `then` gets the page before extents() returns or, if memory must be registered
  /// for that, later, as a job of the worker. It is not called once the session is over. Errors:
  /// kAccessRefused, with the reason: the server took the grant back; kInvalidArgument; those of
  /// LaneKeyRenewal::renew().
  void extents(const control::ExtentsRequest& request, Opened then);
  Result<ServerReply> close(const control::CloseRequest& request);
  Result<ServerReply> state(const control::GrantStateRequest& request) const;

  /// Marks the grant as being revoked. Empty: there is no such grant. False: it was already marked.
  std::optional<bool> mark_revoking(std::uint64_t grant_id, Reason reason);
  /// Ends the grant and invalidates its keys.
  void end_grant(std::uint64_t grant_id, Reason reason, ServerMetrics::TakenBack how);
  /// Ends all grants.
  void close_all();
  /// See GrantHandle::leave_device().
  void leave_device() noexcept;
  /// Takes over the grants of the session that this session resumes.
  void take_over(GrantSet& before);
  /// Ends the grants that the client does not list in `held`: the client got no reply that named
  /// them, or no reply to its close request, and it never uses them. Returns the listed ids whose
  /// grants have ended, with the reasons.
  struct Missing {
    std::uint64_t grant_id;
    Reason reason;
  };
  std::vector<Missing> reconcile(const std::vector<std::uint64_t>& held);
  /// Those of the listed grants that the session does not have, each once, with the reason.
  [[nodiscard]] std::vector<Missing> missing(const std::vector<std::uint64_t>& held) const;
  /// Grants whose revocation has begun.
  [[nodiscard]] std::vector<Missing> being_revoked() const;
  /// Whether the client has to ask for a page of extents again because it has new lanes, whose keys
  /// differ from those of its old lanes. Counts the page.
  [[nodiscard]] bool take_owed_page() noexcept;

  /// Any thread.
  [[nodiscard]] std::size_t open_count() const noexcept {
    return open_count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] const GrantNames& names() const noexcept { return names_; }

 private:
  struct OpenGrant {
    std::shared_ptr<RegionEntry> region;
    transport::Grant grant;        ///< empty during a `renewal`, which has it
    std::uint64_t size_bytes = 0;  ///< size of the region when it was opened
    std::size_t extent_count = 0;  ///< number of the grant's extents
    bool revoking = false;         ///< the revocation has begun, for `reason`
    Reason reason = Reason::kNone;
    std::shared_ptr<GrantRenewal> renewal{};
  };
  /// A grant that is being made while another thread registers the memory.
  struct PendingOpen {
    std::shared_ptr<ServerSession> session;
    std::shared_ptr<RegionEntry> region;
    std::shared_ptr<RegionMemory> memory;
    transport::GrantRequest request;  ///< its spans are in `memory`, or in `reached` and `keys`
    std::uint64_t size_bytes = 0;
    Opened then;
    // Set by reattach().
    std::optional<std::uint64_t> grant_id{};  ///< the client's id of the grant; empty: a new grant
    std::vector<transport::MemoryStretch> reached{};
    std::vector<std::uint32_t> keys{};
    std::optional<Result<transport::Grant>> made{};
  };
  using Grants = std::unordered_map<std::uint64_t, OpenGrant>;
  /// The most grants in `taken_`: the client may still ask about a grant that was taken back.
  static constexpr std::size_t kMaxTaken = 1024;

  [[nodiscard]] PendingOpen prepare(const std::shared_ptr<RegionEntry>& region, Rights rights,
                                    Opened then);
  /// Has the endpoint make the grant.
  void make(PendingOpen wanted);
  static void register_pending(ServerCore& server, std::shared_ptr<PendingOpen> pending);
  void finish_pending(PendingOpen& pending);
  Result<ServerReply> add(PendingOpen& pending);
  Result<ServerReply> add_again(PendingOpen& pending, std::uint64_t grant_id);
  void drop(RegionEntry& region, Result<transport::Grant> grant);
  [[nodiscard]] std::string registration_group(const RegionEntry& region) const;

  /// Errors: those of extents(), without those of LaneKeyRenewal::renew().
  [[nodiscard]] Status has_page(const control::ExtentsRequest& request) const;
  [[nodiscard]] static ServerReply page_of(const transport::Grant& grant, std::size_t first);
  void wait_for(GrantRenewal& renewal, const control::ExtentsRequest& request, Opened then);
  /// Has another thread renew the grant. False: no thread can be started, and nothing has changed.
  [[nodiscard]] bool begin_renewal(Grants::iterator found, transport::LaneKeyRenewal& lane_keys,
                                   const control::ExtentsRequest& request, const Opened& then);
  static void renew(ServerCore& server, std::shared_ptr<GrantRenewal> renewal);
  static void finish_renewal(ServerCore& server, const std::shared_ptr<GrantRenewal>& renewal);
  void put_back(GrantRenewal& renewal);
  static void answer(GrantRenewal& renewal);
  void answer_first(const GrantRenewal::Asked& asked, const Status& renewed) const;

  void hold(std::uint64_t grant_id, OpenGrant open);
  void end(Grants::iterator found);

  ServerCore& server_;
  ServerSession& session_;
  Grants grants_;
  std::uint64_t open_bytes_ = 0;            ///< of grants_
  std::uint64_t reserved_ = 0;              ///< unfinished fences and opens; each needs a grant
  std::uint64_t reserved_bytes_ = 0;        ///< of their regions
  std::size_t owed_pages_ = 0;              ///< see take_owed_page()
  std::atomic<std::size_t> open_count_{0};  ///< of grants_
  std::unordered_map<std::uint64_t, Reason> taken_;
  std::deque<std::uint64_t> taken_order_;  ///< of taken_, the oldest first
  GrantNames names_;
};

}  // namespace remora::detail
