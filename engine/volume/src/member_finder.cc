#include "member_finder.h"

namespace remora::volume::detail {

namespace {

constexpr Operation kOpenMember{"open volume"};

Error other_memory(const std::string& address) noexcept {
  return Error{Code::kStaleRegion, kOpenMember}
      .with_reason(Reason::kNewMemory)
      .with_server(address);
}

}  // namespace

std::string MemberFinder::uri(const std::string& address, const std::string& region) const {
  std::string text = "remora://" + address;
  if (!region.empty()) text += "/" + region;
  if (transport_ != TransportKind::kAuto) text.append("?transport=").append(to_string(transport_));
  return text;
}

/// The first address at which the member's memory is; else the first that answers.
const Result<MemberFinder::Reached>& MemberFinder::reach(const Member& member,
                                                         const std::vector<std::string>& present) {
  const std::pair key{member.server, member.memory_id};
  if (const auto known = servers_.find(key); known != servers_.end()) return known->second;
  Result<Reached> reached{Error{Code::kUnreachable, kOpenMember}.with_subject("no address")};
  const auto is_there = [&] { return reached.ok() && reached->memory_id == member.memory_id; };
  const auto try_all = [&](const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      if (is_there()) return;
      const auto session = engine_.connect(uri(address, {}));
      if (session && (!reached || session->server().memory_id == member.memory_id))
        reached = Reached{.address = address, .memory_id = session->server().memory_id};
      else if (!session && !reached && reached.error().reason() != Reason::kVersion)
        reached = session.error();
    }
  };
  try_all(present);
  // Another server may have taken the name while this one could not renew its lease.
  if (reached.ok() && present != member.addresses) try_all(member.addresses);
  return servers_.emplace(key, std::move(reached)).first->second;
}

Result<std::string> MemberFinder::find(const Member& member,
                                       const std::vector<std::string>& present) {
  const Result<Reached>& server = reach(member, present);
  if (!server) return server.error();
  // Checked before: in other memory there is no region of that name.
  if (server->memory_id != member.memory_id) return other_memory(server->address);
  return uri(server->address, member.region);
}

Result<Region> MemberFinder::checked(Result<Region> region, const Member& member,
                                     std::uint64_t size_bytes) const {
  if (!region) return region;
  const auto known = servers_.find({member.server, member.memory_id});
  const std::string address =
      known != servers_.end() && known->second ? known->second->address : std::string{};
  if (region->info().memory_id != member.memory_id ||
      region->info().incarnation != member.incarnation)
    return other_memory(address);
  if (region->transport() == TransportKind::kShm)
    return Error{Code::kUnsupported, kOpenMember}.with_server(address);
  if (region->size_bytes() < size_bytes)
    return Error{Code::kProtocol, kOpenMember}
        .with_limit(size_bytes, region->size_bytes())
        .with_server(address);
  return region;
}

}  // namespace remora::volume::detail
