#include "cli/opened_store.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <remora/volume/uri.h>

#include "cli/cluster_uri.h"
#include "cli/interrupt.h"

namespace remora::apps {

namespace {

/// A few stripe units, so that all servers are busy.
constexpr std::size_t kVolumeBytes = std::size_t{4} << 20U;

Transferred download_volume(const volume::Volume& from, std::uint64_t offset, std::uint64_t length,
                            const Consumer& consumer) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kVolumeBytes, length));
  Transferred moved;
  while (moved.status && moved.bytes < length) {
    if (interrupted() != 0) return {.bytes = moved.bytes, .status = interruption()};
    const auto piece =
        std::span{buffer}.first(std::min<std::uint64_t>(buffer.size(), length - moved.bytes));
    moved.status = from.read(ByteOffset{offset + moved.bytes}, piece);
    if (moved.status) moved.status = consumer(piece);
    if (moved.status) moved.bytes += piece.size();
  }
  return moved;
}

Transferred upload_volume(const volume::Volume& to, std::uint64_t offset, std::uint64_t limit_bytes,
                          const Producer& producer) {
  // One byte more than the room, so that bytes beyond it are noticed.
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kVolumeBytes, limit_bytes + 1));
  Transferred moved;
  for (bool at_end = false; !at_end;) {
    if (interrupted() != 0) return {.bytes = moved.bytes, .status = interruption()};
    std::size_t filled = 0;
    while (filled < buffer.size() && !at_end) {
      const auto count = producer.read(std::span{buffer}.subspan(filled));
      if (!count) return {.bytes = moved.bytes, .status = count.error()};
      at_end = *count == 0;
      filled += *count;
    }
    const std::uint64_t room = limit_bytes - moved.bytes;
    const auto piece = std::span{buffer}.first(std::min<std::uint64_t>(filled, room));
    if (!piece.empty()) moved.status = to.write(ByteOffset{offset + moved.bytes}, piece);
    if (!moved.status) return moved;
    moved.bytes += piece.size();
    if (filled > room)
      return {.bytes = moved.bytes, .status = Error{Code::kLimitExceeded, "write beyond the room"}};
  }
  return moved;
}

}  // namespace

tl::expected<OpenedStore, Failure> OpenedStore::open(const Globals& globals, const std::string& uri,
                                                     Rights rights) {
  if (volume::is_volume_uri(uri)) {
    const auto named = open_cluster(globals, uri, true);
    if (!named) return tl::make_unexpected(named.error());
    auto engine = open_engine(globals);
    if (!engine) return fail(engine.error());
    auto opened = volume::Volume::open(*engine, named->cluster, named->volume,
                                       {.rights = rights, .operation_deadline = globals.timeout});
    if (!opened) return fail(opened.error());
    return OpenedStore{std::move(*engine), std::move(*opened)};
  }
  if (const auto parsed = parse_uri(uri, true); !parsed) return tl::make_unexpected(parsed.error());
  auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  auto region = engine->open_region(uri, rights);
  if (!region) return fail(region.error());
  return OpenedStore{std::move(*engine), std::move(*region)};
}

std::uint64_t OpenedStore::size_bytes() const {
  return std::visit([](const auto& store) { return store.size_bytes(); }, store_);
}

std::string OpenedStore::name() const {
  if (const auto* const region = std::get_if<Region>(&store_))
    return "region " + region->info().name;
  return "volume " + std::get<volume::Volume>(store_).record().name;
}

Transferred OpenedStore::download(std::uint64_t offset, std::uint64_t length,
                                  const Consumer& consumer) const {
  if (const auto* const region = std::get_if<Region>(&store_))
    return apps::download(engine_, *region, offset, length, consumer);
  return download_volume(std::get<volume::Volume>(store_), offset, length, consumer);
}

Transferred OpenedStore::upload(std::uint64_t offset, std::uint64_t limit_bytes,
                                const Producer& producer) const {
  if (const auto* const region = std::get_if<Region>(&store_))
    return apps::upload(engine_, *region, offset, limit_bytes, producer);
  return upload_volume(std::get<volume::Volume>(store_), offset, limit_bytes, producer);
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
