#include "cli/opened_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include <remora/volume/uri.h>

#include "cli/checksum.h"
#include "cli/cluster_uri.h"

namespace remora::apps {
namespace {

/// A checksum of the names of the regions that hold these bytes; of a mirror, of the primaries'. No
/// two regions of members ever have one name, so it is another one when a lost group has become
/// zeroes. Growth adds rows and leaves it as it is.
std::string regions_that_hold(const volume::Volume& volume, std::uint64_t offset,
                              std::uint64_t length) {
  const volume::VolumeRecord& record = volume.record();
  const std::vector<volume::GroupState> groups = volume.groups();
  const std::uint64_t first = offset / record.row_bytes() * record.width;
  const std::uint64_t last = length == 0 ? offset : offset + length - 1;
  const std::uint64_t end =
      std::min<std::uint64_t>((last / record.row_bytes() + 1) * record.width, groups.size());
  std::string names;
  for (std::uint64_t i = first; i < end; ++i) names.append(groups[i].region).append("\n");
  auto sum = Checksum::make(ChecksumKind::kSha256);
  if (!sum) return names;
  sum->update(std::as_bytes(std::span{names}));
  return sum->digest();
}

}  // namespace

tl::expected<void, Failure> check_store_uri(const std::string& uri) {
  if (volume::is_volume_uri(uri)) {
    const auto parsed = parse_cluster_uri(uri, true);
    if (!parsed) return tl::make_unexpected(parsed.error());
    return {};
  }
  const auto parsed = parse_uri(uri, true);
  if (!parsed) return tl::make_unexpected(parsed.error());
  return {};
}

Json store_names(const std::string& uri) {
  if (volume::is_volume_uri(uri)) {
    auto parsed = volume::parse_uri(uri).value();
    std::string name = std::exchange(parsed.volume, {});
    return Json{{"cluster", parsed.text()}, {"volume", std::move(name)}};
  }
  const Uri parsed = Uri::parse(uri).value();
  return Json{{"server", parsed.server()}, {"region", parsed.region}};
}

tl::expected<OpenedStore, Failure> OpenedStore::open(const Globals& globals, const std::string& uri,
                                                     Rights rights, std::string_view context,
                                                     EngineOptions options) {
  if (auto checked = check_store_uri(uri); !checked)
    return tl::make_unexpected(std::move(checked.error()));
  auto opened_engine = open_engine(globals, std::move(options));
  if (!opened_engine) return fail(opened_engine.error(), context);
  auto engine = std::make_unique<Engine>(std::move(*opened_engine));
  if (volume::is_volume_uri(uri)) {
    const auto named = open_cluster(globals, uri, true);
    if (!named) return tl::make_unexpected(named.error());
    auto opened = volume::Volume::open(*engine, named->cluster, named->volume,
                                       {.rights = rights, .operation_deadline = globals.timeout});
    if (!opened) return fail_in_cluster(opened.error(), context);
    if ((rights & (Rights::kWrite | Rights::kAtomic)) != Rights::kNone)
      if (const Status claimed = claim_if_mirror(*opened); !claimed)
        return fail_in_cluster(claimed.error(), context);
    return OpenedStore{std::move(engine), std::move(*opened)};
  }
  auto region = engine->open_region(uri, rights);
  if (!region) return fail(region.error(), context);
  return OpenedStore{std::move(engine), std::move(*region)};
}

std::uint64_t OpenedStore::size_bytes() const {
  return std::visit([](const auto& store) { return store.size_bytes(); }, store_);
}

std::string_view OpenedStore::kind() const noexcept {
  return region() != nullptr ? "region" : "volume";
}

std::string OpenedStore::name() const {
  std::string name{kind()};
  return name.append(" ").append(region() != nullptr ? region()->info().name
                                                     : opened_volume().record().name);
}

std::string OpenedStore::transport() const {
  if (region() != nullptr) return std::string{to_string(region()->transport())};
  std::string names;
  for (const volume::GroupState& group : opened_volume().groups()) {
    const std::string_view name = to_string(group.transport);
    if (names.find(name) == std::string::npos) names.append(names.empty() ? "" : ",").append(name);
  }
  return names;
}

bool OpenedStore::mapped() const noexcept {
  return region() != nullptr && region()->transport() == TransportKind::kShm;
}

bool OpenedStore::connected() const {
  if (region() != nullptr) return region()->connected();
  const std::vector<volume::GroupState> groups = opened_volume().groups();
  return std::all_of(groups.begin(), groups.end(),
                     [](const volume::GroupState& group) { return group.connected; });
}

std::uint64_t OpenedStore::row_bytes() const noexcept {
  if (region() != nullptr) return 0;
  const volume::VolumeRecord& record = opened_volume().record();
  return record.width * record.stripe_bytes;
}

Json OpenedStore::identity(std::uint64_t offset, std::uint64_t length) const {
  if (region() == nullptr)
    return Json{{"volume_id", opened_volume().record().id},
                {"regions", regions_that_hold(opened_volume(), offset, length)}};
  const RegionInfo& info = region()->info();
  return Json{
      {"memory_id", info.memory_id}, {"incarnation", info.incarnation}, {"epoch", info.epoch}};
}

Result<StoreQueue> OpenedStore::queue(std::size_t depth) const {
  return std::visit(
      [depth](const auto& store) -> Result<StoreQueue> {
        auto queue = store.queue({.depth = depth});
        if (!queue) return queue.error();
        return StoreQueue{std::move(*queue)};
      },
      store_);
}

Result<std::uint64_t> OpenedStore::compare_swap(ByteOffset at, std::uint64_t expected,
                                                std::uint64_t desired) const {
  return std::visit([&](const auto& store) { return store.compare_swap(at, expected, desired); },
                    store_);
}

Result<std::uint64_t> OpenedStore::fetch_add(ByteOffset at, std::uint64_t delta) const {
  return std::visit([&](const auto& store) { return store.fetch_add(at, delta); }, store_);
}

}  // namespace remora::apps
