#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/volume/cluster.h>
#include <remora/volume/records.h>

#include "record_reader.h"

namespace remora::volume {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array kKinds{"striped", "mirror"};
constexpr std::array kVolumeStates{"creating", "ready", "removing", "importing"};
constexpr std::array kMemberStates{"in_sync", "syncing"};

OrderedJson json_of(const Member& member) {
  return {{"server", member.server},
          {"addresses", member.addresses},
          {"memory_id", hexadecimal(member.memory_id)},
          {"region", member.region},
          {"incarnation", hexadecimal(member.incarnation)},
          {"state", to_string(member.state)}};
}

bool read_member(RecordReader& reader, Member& member) {
  reader.name("server", member.server);
  reader.texts("addresses", member.addresses);
  reader.id("memory_id", member.memory_id);
  reader.name("region", member.region);
  reader.id("incarnation", member.incarnation);
  reader.choice("state", kMemberStates, member.state);
  return reader.good();
}

/// The rules between the members of a volume.
std::string_view broken_rule(const VolumeRecord& volume) noexcept {
  if (!std::has_single_bit(volume.block_bytes)) return "block_bytes";
  if (!std::has_single_bit(volume.stripe_bytes) || volume.stripe_bytes < volume.block_bytes)
    return "stripe_bytes";
  if (volume.group_bytes % volume.stripe_bytes != 0) return "group_bytes";
  if (volume.size_bytes % volume.block_bytes != 0) return "size_bytes";
  if (volume.group_count() > kGroupsMax) return "size_bytes";
  if ((volume.kind == Kind::kStriped) != (volume.copies == 1)) return "copies";
  return {};
}

}  // namespace

std::string_view to_string(Kind kind) noexcept { return kKinds.at(std::size_t(kind)); }
std::string_view to_string(VolumeState state) noexcept {
  return kVolumeStates.at(std::size_t(state));
}
std::string_view to_string(MemberState state) noexcept {
  return kMemberStates.at(std::size_t(state));
}

std::string region_prefix(std::uint64_t volume_id) { return "vol-" + hexadecimal(volume_id) + "-"; }

std::string region_name(std::uint64_t volume_id, std::uint64_t group, std::uint64_t unique) {
  return region_prefix(volume_id) + std::to_string(group) + "-" + hexadecimal(unique);
}

std::uint64_t random_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) number = (std::uint64_t{device()} << 32U) | device();
  return number;
}

std::string to_json(const ServerRecord& record) {
  return OrderedJson{{"version", kRecordVersion},
                     {"name", record.name},
                     {"addresses", record.addresses},
                     {"boot_id", hexadecimal(record.boot_id)},
                     {"memory_id", hexadecimal(record.memory_id)},
                     {"pool_bytes", record.pool_bytes},
                     {"pool_free_bytes", record.pool_free_bytes},
                     {"failure_domain", record.failure_domain},
                     {"software", record.software}}
      .dump();
}

std::string to_json(const VolumeRecord& record) {
  return OrderedJson{{"version", kRecordVersion},
                     {"name", record.name},
                     {"id", hexadecimal(record.id)},
                     {"state", to_string(record.state)},
                     {"size_bytes", record.size_bytes},
                     {"block_bytes", record.block_bytes},
                     {"kind", to_string(record.kind)},
                     {"copies", record.copies},
                     {"group_bytes", record.group_bytes},
                     {"stripe_bytes", record.stripe_bytes},
                     {"width", record.width},
                     {"writer_epoch", record.writer_epoch},
                     {"writer", record.writer},
                     {"exclusive", record.exclusive},
                     {"allow_same_domain", record.allow_same_domain},
                     {"nonce", hexadecimal(record.nonce)}}
      .dump();
}

std::string to_json(const GroupRecord& record) {
  OrderedJson members = OrderedJson::array();
  for (const Member& member : record.members) members.push_back(json_of(member));
  return OrderedJson{{"version", kRecordVersion},
                     {"index", record.index},
                     {"epoch", record.epoch},
                     {"adopted", record.adopted},
                     {"generation", hexadecimal(record.generation)},
                     {"members", members},
                     {"promoting", record.promoting},
                     {"lost", record.lost},
                     {"restored", record.restored},
                     {"nonce", hexadecimal(record.nonce)}}
      .dump();
}

Result<ServerRecord> parse_server(std::string_view key, std::string_view json) {
  ServerRecord record;
  auto reader = RecordReader::parse(key, json);
  if (!reader) return reader.error();
  reader->name("name", record.name);
  reader->texts("addresses", record.addresses);
  reader->id("boot_id", record.boot_id);
  reader->id("memory_id", record.memory_id);
  reader->number("pool_bytes", 0, UINT64_MAX, record.pool_bytes);
  reader->number("pool_free_bytes", 0, record.pool_bytes, record.pool_free_bytes);
  reader->text("failure_domain", record.failure_domain);
  reader->text("software", record.software);
  if (!reader->good()) return reader->error();
  return record;
}

Result<VolumeRecord> parse_volume(std::string_view key, std::string_view json) {
  VolumeRecord record;
  auto reader = RecordReader::parse(key, json);
  if (!reader) return reader.error();
  constexpr std::uint64_t kBytesMax = kGroupBytesMax * kGroupsMax;
  std::uint64_t copies = 0;
  std::uint64_t width = 0;
  reader->name("name", record.name);
  reader->id("id", record.id);
  reader->choice("state", kVolumeStates, record.state);
  reader->number("size_bytes", 1, kBytesMax, record.size_bytes);
  reader->number("block_bytes", 64, std::uint64_t{16} << 20U, record.block_bytes);
  reader->choice("kind", kKinds, record.kind);
  reader->number("copies", 1, kCopiesMax, copies);
  reader->number("group_bytes", kGroupBytesMin, kGroupBytesMax, record.group_bytes);
  reader->number("stripe_bytes", kStripeBytesMin, kGroupBytesMax, record.stripe_bytes);
  reader->number("width", 1, kWidthMax, width);
  reader->number("writer_epoch", 0, UINT64_MAX, record.writer_epoch);
  reader->text("writer", record.writer);
  reader->flag("exclusive", record.exclusive);
  reader->flag("allow_same_domain", record.allow_same_domain);
  reader->id("nonce", record.nonce);
  record.copies = static_cast<std::uint32_t>(copies);
  record.width = static_cast<std::uint32_t>(width);
  if (!reader->good()) return reader->error();
  if (const std::string_view member = broken_rule(record); !member.empty())
    return reader->wrong(member);
  return record;
}

Result<GroupRecord> parse_group(std::string_view key, std::string_view json) {
  GroupRecord record;
  auto reader = RecordReader::parse(key, json);
  if (!reader) return reader.error();
  reader->number("index", 0, kGroupsMax - 1, record.index);
  reader->number("epoch", 1, UINT64_MAX, record.epoch);
  reader->number("adopted", 0, UINT64_MAX, record.adopted);
  reader->id("generation", record.generation);
  reader->flag("promoting", record.promoting);
  reader->flag("lost", record.lost);
  reader->flag("restored", record.restored);
  reader->id("nonce", record.nonce);
  reader->objects("members", kCopiesMax + 1, [&](RecordReader& each) {
    return read_member(each, record.members.emplace_back());
  });
  if (!reader->good()) return reader->error();
  if (record.members.empty() && !record.lost) return reader->wrong("members");
  std::set<std::string_view> regions;
  for (const Member& member : record.members)
    if (!regions.insert(member.region).second) return reader->wrong("members: region");
  return record;
}

std::string generation_json(std::uint64_t generation) {
  return OrderedJson{{"version", kRecordVersion}, {"generation", hexadecimal(generation)}}.dump();
}

Result<std::uint64_t> parse_generation(std::string_view key, std::string_view json) {
  std::uint64_t generation = 0;
  auto reader = RecordReader::parse(key, json);
  if (!reader) return reader.error();
  reader->id("generation", generation);
  if (!reader->good()) return reader->error();
  return generation;
}

}  // namespace remora::volume
