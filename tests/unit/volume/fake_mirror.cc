#include "fake_mirror.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "group_changes.h"
#include "mirror_layout.h"

namespace remora::volume::test {

namespace {

constexpr std::uint64_t kFree = std::uint64_t{1} << 30U;

std::string server_number(std::uint32_t number) { return "s" + std::to_string(number); }

}  // namespace

FakeMirror::FakeMirror(std::uint32_t servers, std::uint32_t groups, std::uint32_t zones)
    : zones_{zones} {
  for (std::uint32_t i = 0; i < servers; ++i) {
    ServerRecord server;
    server.name = server_number(i);
    server.addresses = {"192.0.2." + std::to_string(i + 1) + ":7471"};
    server.memory_id = i + 1;
    server.pool_bytes = 2 * kFree;
    server.pool_free_bytes = kFree;
    layout_.servers.push_back(std::move(server));
  }
  VolumeRecord& volume = layout_.volume;
  volume.name = "disk";
  volume.id = 7;
  volume.kind = Kind::kMirror;
  volume.copies = 2;
  volume.block_bytes = 4096;
  volume.group_bytes = zones * detail::kZoneBytes;
  volume.width = groups;
  volume.size_bytes = groups * volume.group_bytes;
  for (std::uint32_t i = 0; i < groups; ++i) {
    GroupRecord& group = layout_.groups.emplace_back();
    group.index = i;
    for (const std::uint32_t server : {i % servers, (i + 1) % servers}) {
      const std::string region = region_name(volume.id, i, next_region_++);
      group.members.push_back({.server = server_number(server),
                               .addresses = layout_.servers[server].addresses,
                               .memory_id = server + 1,
                               .region = region,
                               .incarnation = 1});
      Contents contents{server_number(server), {}, {}};
      for (std::uint32_t zone = 0; zone < zones; ++zone)
        contents.zones.push_back(100 * (i + 1) + zone);
      regions_[region] = std::move(contents);
    }
  }
}

void FakeMirror::lose_server(const std::string& server) {
  std::erase_if(regions_, [&](const auto& region) { return region.second.server == server; });
  std::erase_if(layout_.servers, [&](const ServerRecord& each) { return each.name == server; });
  for (GroupRecord& group : layout_.groups)
    std::erase_if(group.members, [&](const Member& each) { return each.server == server; });
}

void FakeMirror::claim_again() {
  for (GroupRecord& group : layout_.groups) {
    std::erase_if(group.members,
                  [](const Member& each) { return each.state == MemberState::kSyncing; });
    group.promoting = false;
  }
}

bool FakeMirror::members_equal() const {
  for (const GroupRecord& group : layout_.groups)
    for (const Member& member : group.members) {
      if (member.state != MemberState::kInSync) continue;
      const auto found = regions_.find(member.region);
      if (found == regions_.end()) return false;
      for (std::uint32_t zone = 0; zone < zones_; ++zone)
        if (found->second.zones[zone] != 100 * (group.index + 1) + zone) return false;
    }
  return true;
}

std::vector<std::string> FakeMirror::orphans() const {
  std::vector<std::string> names;
  for (const auto& region : regions_) {
    const std::string& name = region.first;
    const bool used =
        std::any_of(layout_.groups.begin(), layout_.groups.end(), [&](const GroupRecord& group) {
          return std::any_of(group.members.begin(), group.members.end(),
                             [&](const Member& each) { return each.region == name; });
        });
    if (!used) names.push_back(name);
  }
  return names;
}

std::size_t FakeMirror::in_sync(std::uint32_t group) const {
  const auto& members = layout_.groups[group].members;
  return static_cast<std::size_t>(
      std::count_if(members.begin(), members.end(),
                    [](const Member& each) { return each.state == MemberState::kInSync; }));
}

std::uint32_t FakeMirror::group_count() const noexcept {
  return static_cast<std::uint32_t>(layout_.groups.size());
}

Status FakeMirror::confirm() {
  if (claimed()) return {};
  return Error{Code::kAccessRefused, "claim of a volume"};
}

bool FakeMirror::group_open(std::uint32_t group) const {
  const std::lock_guard lock{mutex_};
  return !closed_.contains(group) && !layout_.groups[group].members.empty();
}

Status FakeMirror::adoption(std::uint32_t group) const {
  const std::lock_guard lock{mutex_};
  const auto found = closed_.find(group);
  return found == closed_.end() ? Status{} : found->second;
}

GroupRecord FakeMirror::group(std::uint32_t group) const {
  const std::lock_guard lock{mutex_};
  return layout_.groups[group];
}

bool FakeMirror::claimed() const noexcept {
  const std::lock_guard lock{mutex_};
  return claimed_;
}

void FakeMirror::lose_claim() {
  const std::lock_guard lock{mutex_};
  claimed_ = false;
}

std::size_t FakeMirror::step_count() const {
  const std::lock_guard lock{mutex_};
  return steps.size();
}

Status FakeMirror::step(const std::string& name) {
  if (before_step)
    if (const Status fails = before_step(name); !fails) return fails;
  steps.push_back(name);
  return {};
}

const std::string& FakeMirror::server_of(std::uint32_t group, const std::string& region) const {
  for (const Member& member : layout_.groups[group].members)
    if (member.region == region) return member.server;
  throw std::logic_error{"no member of that region"};
}

Status FakeMirror::add_syncing(std::uint32_t group, const Member& member, Time /*until*/) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("add " + std::to_string(group) + " " + member.server); !taken)
    return taken;
  auto next = detail::with_syncing(layout_.groups[group], member);
  if (!next) return next.error();
  layout_.groups[group] = std::move(*next);
  return {};
}

Status FakeMirror::copy_zone(std::uint32_t group, std::uint32_t zone, Time /*until*/) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("copy " + std::to_string(group) + "/" + std::to_string(zone));
      !taken)
    return taken;
  const auto& members = layout_.groups[group].members;
  for (const Member& member : members)
    regions_.at(member.region).zones[zone] = regions_.at(members.front().region).zones[zone];
  return {};
}

Status FakeMirror::make_in_sync(std::uint32_t group, Time /*until*/) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("in sync " + std::to_string(group)); !taken) return taken;
  auto next = detail::with_in_sync(layout_.groups[group]);
  if (!next) return next.error();
  layout_.groups[group] = std::move(*next);
  return {};
}

Status FakeMirror::remove_member(std::uint32_t group, const std::string& region, Time /*until*/) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("remove " + std::to_string(group) + " " + server_of(group, region));
      !taken)
    return taken;
  auto next = detail::without_member(layout_.groups[group], region);
  if (!next) return next.error();
  layout_.groups[group] = std::move(*next);
  return {};
}

void FakeMirror::tell(const VolumeEvent& event) {
  const std::lock_guard lock{mutex_};
  events.push_back(event);
}

Status FakeMirror::settle_promotion(std::uint32_t group, Time /*until*/) {
  const std::lock_guard lock{mutex_};
  if (!layout_.groups[group].promoting) return {};
  if (const Status taken = step("promoted " + std::to_string(group)); !taken) return taken;
  auto next = detail::with_promotion_ended(layout_.groups[group]);
  if (!next) return next.error();
  layout_.groups[group] = std::move(*next);
  return {};
}

Managed<Member> FakeMirror::make(const ServerRecord& server, const RegionSpec& spec) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("make on " + server.name); !taken)
    return tl::unexpected<Failure>{Failure{taken.error()}};
  regions_[spec.name] = {server.name, std::vector<std::uint64_t>(zones_, 0), {}};
  return Member{.server = server.name,
                .addresses = server.addresses,
                .memory_id = server.memory_id,
                .region = spec.name,
                .incarnation = next_region_++};
}

Result<RegionInfo> FakeMirror::stat(const Member& member,
                                    const std::vector<std::string>& /*addresses*/) {
  const std::lock_guard lock{mutex_};
  if (!regions_.contains(member.region)) return Error{Code::kUnknownRegion, "stat"};
  return RegionInfo{.name = member.region};
}

Result<std::vector<std::string>> FakeMirror::list(const std::string& server,
                                                  const std::vector<std::string>& /*addresses*/,
                                                  std::string_view prefix) {
  const std::lock_guard lock{mutex_};
  std::vector<std::string> names;
  for (const auto& [name, contents] : regions_)
    if (contents.server == server && name.starts_with(prefix)) names.push_back(name);
  return names;
}

Result<detail::MemberHeader> FakeMirror::read_header(const std::string& /*server*/,
                                                     const std::vector<std::string>& /*addresses*/,
                                                     const std::string& region) {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return Error{Code::kUnknownRegion, "open"};
  return found->second.header;
}

Status FakeMirror::remove(const std::string& server, const std::vector<std::string>& /*addresses*/,
                          const std::string& region) {
  const std::lock_guard lock{mutex_};
  if (const Status taken = step("delete on " + server); !taken) return taken;
  regions_.erase(region);
  return {};
}

}  // namespace remora::volume::test
