#include "make_member.h"

#include <algorithm>
#include <utility>

#include "mirror_layout.h"
#include "volume_builder.h"

namespace remora::volume {

std::uint64_t region_bytes_of(const VolumeRecord& volume) noexcept {
  return volume.kind == Kind::kMirror ? detail::mirror_region_bytes(volume.group_bytes)
                                      : volume.group_bytes;
}

RegionSpec region_spec_of(const VolumeRecord& volume, std::uint64_t group, RegionSpec properties) {
  properties.name = region_name(volume.id, group, random_number());
  properties.size_bytes = region_bytes_of(volume);
  properties.block_bytes = volume.block_bytes;
  if (volume.kind == Kind::kMirror) {
    // Header and bitmap are whole blocks of this size.
    properties.block_bytes = std::min(volume.block_bytes, detail::kMirrorBlockBytes);
    properties.atomic_domain = "none";  // the claimed writer serialises atomics (rule 8)
  }
  return properties;
}

RegionSpec properties_of(const RegionInfo& region) {
  RegionSpec spec;
  spec.access = region.access;
  spec.atomic_domain = region.atomic_domain == "cpu" || region.atomic_domain == "none"
                           ? region.atomic_domain
                           : "auto";  // a device, which has another name on other servers
  return spec;
}

Managed<Member> make_member(MemberServers& servers, const ServerRecord& server,
                            const RegionSpec& spec, bool& left) {
  left = false;
  const auto session = servers.connect(server.name, server.addresses);
  if (!session) return failure(session.error(), "server " + server.name);
  if (session->server().memory_id != server.memory_id)
    return failure(
        Error{Code::kStaleRegion, "record of a server"}.with_subject(server.name),
        "the server at " + server.addresses.front() +
            " has other memory than the record in the cluster says: wait until it has registered "
            "itself again, and try again");
  const auto region = session->create_region(spec);
  if (!region) {
    // Without an answer the region may be there; by its name this client finds it.
    if (const Code code = region.error().code();
        code == Code::kTimedOut || code == Code::kConnectionLost) {
      const Status removed = session->remove_region(spec.name);
      left = !removed && removed.error().code() != Code::kUnknownRegion;
    }
    return failure(region.error(), "server " + server.name);
  }
  return Member{server.name,  server.addresses,    region->memory_id,
                region->name, region->incarnation, MemberState::kInSync};
}

}  // namespace remora::volume
