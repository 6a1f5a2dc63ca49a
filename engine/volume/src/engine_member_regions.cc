#include "engine_member_regions.h"

#include <algorithm>

#include "make_member.h"

namespace remora::volume::detail {

bool EngineMemberRegions::refresh(ServerRecord& server) {
  const auto session = servers_.connect(server.name, server.addresses);
  if (!session || session->server().memory_id != server.memory_id) return false;
  const auto usage = session->usage();
  if (!usage) return false;
  server.pool_bytes = usage->pool_bytes;
  // What is zeroed at the moment is free soon.
  server.pool_free_bytes = usage->pool_bytes - std::min(usage->pool_used_bytes, usage->pool_bytes);
  return true;
}

Managed<Member> EngineMemberRegions::make(const ServerRecord& server, const RegionSpec& spec) {
  bool left = false;  // then the next repair removes it
  return make_member(servers_, server, spec, left);
}

Result<RegionInfo> EngineMemberRegions::stat(const Member& member,
                                             const std::vector<std::string>& addresses) {
  auto session = servers_.connect(member.server, addresses);
  // Another server may have taken the name while this one could not renew its lease.
  if (session && session->server().memory_id != member.memory_id && addresses != member.addresses) {
    const auto before =
        servers_.connect(member.server + " at " + member.addresses.front(), member.addresses);
    if (before) session = before;
  }
  if (!session) return session.error();
  if (session->server().memory_id != member.memory_id)
    return Error{Code::kStaleRegion, "stat"}.with_reason(Reason::kNewMemory);
  auto region = session->stat(member.region);
  if (region && region->incarnation != member.incarnation)
    return Error{Code::kStaleRegion, "stat"}.with_subject(member.region);
  return region;
}

Result<std::vector<std::string>> EngineMemberRegions::list(
    const std::string& server, const std::vector<std::string>& addresses, std::string_view prefix) {
  const auto session = servers_.connect(server, addresses);
  if (!session) return session.error();
  const auto regions = session->regions();
  if (!regions) return regions.error();
  std::vector<std::string> names;
  for (const RegionInfo& region : *regions)
    if (region.name.starts_with(prefix)) names.push_back(region.name);
  return names;
}

Result<MemberHeader> EngineMemberRegions::read_header(const std::string& server,
                                                      const std::vector<std::string>& addresses,
                                                      const std::string& region) {
  // So that a server that does not answer costs its time limit once.
  if (const auto session = servers_.connect(server, addresses); !session) return session.error();
  Result<Region> opened{Error{Code::kNotFound, "address of a server"}.with_subject(server)};
  for (const std::string& address : addresses) {
    std::string uri = "remora://" + address;
    uri.append("/").append(region);
    opened = engine_.open_region(uri, Rights::kRead);
    if (opened) break;
  }
  if (!opened) return opened.error();
  MemberHeader::Bytes bytes{};
  if (const Status read = opened->read(ByteOffset{0}, bytes); !read) return read.error();
  return MemberHeader::decode(bytes);
}

Status EngineMemberRegions::remove(const std::string& server,
                                   const std::vector<std::string>& addresses,
                                   const std::string& region) {
  const auto session = servers_.connect(server, addresses);
  if (!session) return session.error();
  const Status removed = session->remove_region(region, Removal::kNow);
  if (!removed && removed.error().code() == Code::kUnknownRegion) return {};
  return removed;
}

}  // namespace remora::volume::detail
