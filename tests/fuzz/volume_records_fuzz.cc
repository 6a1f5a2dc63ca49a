// What the store of a cluster holds, in any bytes: records of servers, volumes, groups and of the
// generation, and the file that is such a store. What is taken keeps the rules of records.h, and is
// the same when it is written and read again; what is refused is one of the listed errors.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/volume/cluster.h>
#include <remora/volume/records.h>

#include "file_contents.h"
#include "input.h"

namespace remora::fuzz {
namespace {

constexpr std::string_view kKey = "/remora/lab/key";

void refused(const Error& error) {
  require(error.code() == Code::kProtocol || error.code() == Code::kUnsupported,
          "a refusal is one of the listed errors");
  require(error.subject().starts_with(kKey), "a refusal names the key");
  require(!error.message().empty(), "a refusal can be printed");
}

/// What `parse` takes, or its error.
template <typename Parse, typename Write>
auto survives(std::string_view text, const Parse& parse, const Write& write) {
  auto taken = parse(kKey, text);
  if (!taken) {
    refused(taken.error());
    return taken;
  }
  const std::string written = write(*taken);
  const auto again = parse(kKey, written);
  if (!again) violated("what is written can be read: " + written);
  require(*again == *taken, "a record survives writing");
  require(write(*again) == written, "a record has one text");
  return taken;
}

void server(std::string_view text) {
  const auto taken = survives(text, volume::parse_server, [](const volume::ServerRecord& record) {
    return volume::to_json(record);
  });
  if (!taken) return;
  require(config::is_region_name(taken->name), "a server has a name");
  require(!taken->addresses.empty(), "a server has an address");
  require(taken->pool_free_bytes <= taken->pool_bytes, "free memory is of the pool");
}

void volume_record(std::string_view text) {
  const auto taken = survives(text, volume::parse_volume, [](const volume::VolumeRecord& record) {
    return volume::to_json(record);
  });
  if (!taken) return;
  require(config::is_region_name(taken->name), "a volume has a name");
  require(taken->size_bytes > 0 && taken->size_bytes % taken->block_bytes == 0,
          "a volume has whole blocks");
  require(std::has_single_bit(taken->block_bytes) && std::has_single_bit(taken->stripe_bytes) &&
              taken->block_bytes <= taken->stripe_bytes,
          "blocks and stripe units are powers of two, and blocks are within units");
  require(taken->group_bytes % taken->stripe_bytes == 0, "a group has whole stripe units");
  require(taken->group_count() >= 1 && taken->group_count() <= volume::kGroupsMax &&
              taken->group_count() * taken->group_bytes >= taken->size_bytes,
          "the groups hold the volume");
}

void group(std::string_view text) {
  const auto taken = survives(text, volume::parse_group, [](const volume::GroupRecord& record) {
    return volume::to_json(record);
  });
  if (!taken) return;
  require(taken->index < volume::kGroupsMax, "a group is one of those that a volume may have");
  require(taken->lost || !taken->members.empty(), "a group that is not lost has a member");
  require(taken->members.size() <= volume::kCopiesMax + 1, "a group has so many members at most");
  require(std::all_of(taken->members.begin(), taken->members.end(),
                      [](const volume::Member& member) {
                        return config::is_region_name(member.region) && !member.addresses.empty();
                      }),
          "a member has a region and an address");
}

void file(std::string_view text) {
  using volume::FileContents;
  const auto taken = FileContents::parse(kKey, text);
  if (!taken) return refused(taken.error());
  const std::string written = taken->to_json();
  const auto again = FileContents::parse(kKey, written);
  if (!again) violated("a file that is written can be read: " + written);
  require(again->to_json() == written, "a file survives writing");
  FileContents later = *taken;
  later.expire(UINT64_MAX, "");
  require(later.leases.empty(), "each lease ends");
  require(
      std::all_of(later.entries.begin(), later.entries.end(),
                  [&](const auto& entry) { return !taken->leases.contains(entry.second.lease); }),
      "entries go with their lease");
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  remora::fuzz::server(text);
  remora::fuzz::volume_record(text);
  remora::fuzz::group(text);
  (void)remora::fuzz::survives(text, remora::volume::parse_generation,
                               remora::volume::generation_json);
  remora::fuzz::file(text);
  return 0;
}
