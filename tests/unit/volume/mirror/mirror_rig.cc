#include "mirror_rig.h"

#include <cstring>

namespace remora::volume::test {

Member MirrorRig::member_of(std::size_t server) {
  const std::string name = "s" + std::to_string(server);
  return {.server = name,
          .addresses = {"192.0.2.1:7471"},
          .memory_id = server + 1,
          .region = "region-" + name,
          .incarnation = 1};
}

void MirrorRig::make(std::size_t copies) {
  store_ = std::make_shared<FakeStore>();
  clock_ = std::make_shared<FakeClock>();
  cluster_.emplace(store_, "lab");
  VolumeRecord volume;
  volume.name = "v";
  volume.id = 7;
  volume.size_bytes = kGroupBytes;
  volume.block_bytes = 4_KiB;
  volume.kind = Kind::kMirror;
  volume.copies = static_cast<std::uint32_t>(copies);
  volume.group_bytes = kGroupBytes;
  volume.nonce = 1;
  GroupRecord group;
  group.generation = cluster_->generation().value();
  group.nonce = 1;
  regions_.clear();
  for (std::size_t server = 0; server < 4; ++server) {
    const Member member = member_of(server);
    regions_.push_back(std::make_shared<FakeRegion>(
        member.server, detail::mirror_region_bytes(kGroupBytes), log_));
    opener_.add(member.region, regions_.back());
    if (server < copies) group.members.push_back(member);
  }
  store_->put(cluster_->keys().volume("v"), to_json(volume));
  store_group(group);
  options_.clock = clock_;
  options_.member_limit = 5s;
  options_.settle_limit = 10ms;
  options_.steal = true;
  options_.on_event = [this](const VolumeEvent& event) { events_.push_back(event); };
}

std::shared_ptr<detail::VolumeClaim> MirrorRig::claim() {
  return detail::VolumeClaim::claim(*cluster_, "v", options_).value();
}

Result<std::unique_ptr<detail::MirrorGroup>> MirrorRig::try_to_adopt() {
  auto claimed = detail::VolumeClaim::claim(*cluster_, "v", options_);
  if (!claimed) return claimed.error();
  return detail::adopt_group(*claimed, stored(), store_->value(group_key()), options_, opener_,
                             at_once());
}

std::unique_ptr<detail::MirrorGroup> MirrorRig::adopt() {
  auto group = try_to_adopt();
  if (!group) {
    ADD_FAILURE() << group.error();
    return nullptr;
  }
  const Status repaired = (*group)->repair(soon());
  EXPECT_TRUE(repaired.ok());
  log_.take();
  return std::move(*group);
}

Status MirrorRig::write_in_vain(detail::MirrorGroup& group, std::uint64_t offset, int value) {
  while (true) {
    Status done = write_filled(group, offset, value, at_once());
    if (done || done.error().code() != Code::kTimedOut) return done;
  }
}

std::vector<std::string> MirrorRig::servers_of(const GroupRecord& group) const {
  std::vector<std::string> servers;
  for (const Member& member : group.members)
    servers.push_back(member.server + (member.state == MemberState::kSyncing ? " syncing" : ""));
  return servers;
}

std::uint64_t MirrorRig::word_of(std::size_t server) const {
  const auto bytes = regions_[server]->bytes(detail::word_offset(0), sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

void MirrorRig::expect_equal_members() {
  const GroupRecord group = stored();
  const auto bytes_of = [&](const Member& member) {
    return data_of(static_cast<std::size_t>(member.server.back() - '0'), 0, kGroupBytes);
  };
  const auto first = bytes_of(group.members.front());
  for (const Member& member : group.members)
    EXPECT_TRUE(bytes_of(member) == first) << member.server << " differs from the primary";
}

}  // namespace remora::volume::test
