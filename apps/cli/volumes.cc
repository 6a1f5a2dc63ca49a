#include "cli/volumes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include <remora/volume/cluster.h>
#include <remora/volume/open_store.h>
#include <remora/volume/uri.h>
#include <remora/volume/volume.h>
#include <remora/volume/volume_queue.h>

#include "cli/checksum.h"
#include "cli/cluster_uri.h"
#include "cli/store_queue_of.h"

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

class OpenedVolume final : public OpenedStore {
 public:
  OpenedVolume(std::unique_ptr<Engine> engine, volume::Volume volume)
      : OpenedStore{std::move(engine)}, volume_{std::move(volume)} {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return volume_.size_bytes(); }
  [[nodiscard]] std::string_view kind() const noexcept override { return "volume"; }
  [[nodiscard]] std::string name() const override { return "volume " + volume_.record().name; }
  [[nodiscard]] std::string transport() const override {
    std::string names;
    for (const volume::GroupState& group : volume_.groups()) {
      const std::string_view name = to_string(group.transport);
      if (names.find(name) == std::string::npos)
        names.append(names.empty() ? "" : ",").append(name);
    }
    return names;
  }
  [[nodiscard]] bool mapped() const noexcept override { return false; }
  [[nodiscard]] bool connected() const override {
    const std::vector<volume::GroupState> groups = volume_.groups();
    return std::all_of(groups.begin(), groups.end(),
                       [](const volume::GroupState& group) { return group.connected; });
  }
  [[nodiscard]] std::uint64_t row_bytes() const noexcept override {
    return volume_.record().width * volume_.record().stripe_bytes;
  }
  [[nodiscard]] Json identity(std::uint64_t offset, std::uint64_t length) const override {
    return Json{{"volume_id", volume_.record().id},
                {"regions", regions_that_hold(volume_, offset, length)}};
  }

  [[nodiscard]] Result<std::unique_ptr<StoreQueue>> queue(std::size_t depth) const override {
    auto queue = volume_.queue({.depth = depth});
    if (!queue) return queue.error();
    std::unique_ptr<StoreQueue> made =
        std::make_unique<StoreQueueOf<volume::VolumeQueue>>(std::move(*queue));
    return made;
  }
  [[nodiscard]] Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected,
                                                   std::uint64_t desired) const override {
    return volume_.compare_swap(at, expected, desired);
  }
  [[nodiscard]] Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta) const override {
    return volume_.fetch_add(at, delta);
  }

 private:
  volume::Volume volume_;
};

}  // namespace

bool is_cluster_uri(std::string_view uri) noexcept { return volume::is_volume_uri(uri); }

std::string_view help_of_volume_uris() noexcept {
  return ", or of a volume: remora+etcd://HOST[:PORT][,...]/CLUSTER/VOLUME, "
         "remora+file:///PATH/NAME.json/VOLUME";
}

tl::expected<void, Failure> check_volume_uri(const std::string& uri) {
  const auto parsed = parse_cluster_uri(uri, true);
  if (!parsed) return tl::make_unexpected(parsed.error());
  return {};
}

Json volume_names(const std::string& uri) {
  auto parsed = volume::parse_uri(uri).value();
  std::string name = std::exchange(parsed.volume, {});
  return Json{{"cluster", parsed.text()}, {"volume", std::move(name)}};
}

tl::expected<std::unique_ptr<OpenedStore>, Failure> open_volume(std::unique_ptr<Engine> engine,
                                                                const Globals& globals,
                                                                const std::string& uri,
                                                                Rights rights,
                                                                std::string_view context) {
  const auto named = open_cluster(globals, uri, true);
  if (!named) return tl::make_unexpected(named.error());
  auto opened = volume::Volume::open(*engine, named->cluster, named->volume,
                                     {.rights = rights, .operation_deadline = globals.timeout});
  if (!opened) return fail_in_cluster(opened.error(), context);
  if ((rights & (Rights::kWrite | Rights::kAtomic)) != Rights::kNone)
    if (const Status claimed = claim_if_mirror(*opened); !claimed)
      return fail_in_cluster(claimed.error(), context);
  return std::make_unique<OpenedVolume>(std::move(engine), std::move(*opened));
}

std::vector<std::string> volumes_in(const std::string& cluster_uri,
                                    std::chrono::nanoseconds limit) {
  std::vector<std::string> names;
  const auto uri = volume::parse_uri(cluster_uri);
  const auto options = volume::store_options_of_environment();
  if (!uri || !uri->volume.empty() || !options) return names;
  const auto opened = volume::Cluster::open(*uri, *options, limit);
  if (!opened) return names;
  const auto volumes = opened->volumes();
  if (!volumes) return names;
  for (const volume::VolumeRecord& record : *volumes) names.push_back(record.name);
  return names;
}

}  // namespace remora::apps
