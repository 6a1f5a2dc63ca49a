#include "cli/opened_store.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/region_queue.h"
#include "cli/volumes.h"

namespace remora::apps {
namespace {

class OpenedRegion final : public OpenedStore {
 public:
  OpenedRegion(std::unique_ptr<Engine> engine, Region region)
      : OpenedStore{std::move(engine)}, region_{std::move(region)} {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return region_.size_bytes(); }
  [[nodiscard]] std::string_view kind() const noexcept override { return "region"; }
  [[nodiscard]] std::string name() const override { return "region " + region_.info().name; }
  [[nodiscard]] std::string transport() const override {
    return std::string{to_string(region_.transport())};
  }
  [[nodiscard]] bool mapped() const noexcept override {
    return region_.transport() == TransportKind::kShm;
  }
  [[nodiscard]] bool connected() const override { return region_.connected(); }
  [[nodiscard]] std::uint64_t row_bytes() const noexcept override { return 0; }
  [[nodiscard]] Json identity(std::uint64_t /*offset*/, std::uint64_t /*length*/) const override {
    const RegionInfo& info = region_.info();
    return Json{
        {"memory_id", info.memory_id}, {"incarnation", info.incarnation}, {"epoch", info.epoch}};
  }

  [[nodiscard]] Result<std::unique_ptr<StoreQueue>> queue(std::size_t depth) const override {
    auto queue = region_.queue({.depth = depth});
    if (!queue) return queue.error();
    return make_region_queue(std::move(*queue));
  }
  [[nodiscard]] Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected,
                                                   std::uint64_t desired) const override {
    return region_.compare_swap(at, expected, desired);
  }
  [[nodiscard]] Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta) const override {
    return region_.fetch_add(at, delta);
  }

 private:
  Region region_;
};

}  // namespace

tl::expected<void, Failure> check_store_uri(const std::string& uri) {
  if (is_cluster_uri(uri)) return check_volume_uri(uri);
  const auto parsed = parse_uri(uri, true);
  if (!parsed) return tl::make_unexpected(parsed.error());
  return {};
}

Json store_names(const std::string& uri) {
  if (is_cluster_uri(uri)) return volume_names(uri);
  const Uri parsed = Uri::parse(uri).value();
  return Json{{"server", parsed.server()}, {"region", parsed.region}};
}

tl::expected<std::unique_ptr<OpenedStore>, Failure> OpenedStore::open(const Globals& globals,
                                                                      const std::string& uri,
                                                                      Rights rights,
                                                                      std::string_view context,
                                                                      EngineOptions options) {
  if (auto checked = check_store_uri(uri); !checked)
    return tl::make_unexpected(std::move(checked.error()));
  auto opened_engine = open_engine(globals, std::move(options));
  if (!opened_engine) return fail(opened_engine.error(), context);
  auto engine = std::make_unique<Engine>(std::move(*opened_engine));
  if (is_cluster_uri(uri)) return open_volume(std::move(engine), globals, uri, rights, context);
  auto region = engine->open_region(uri, rights);
  if (!region) return fail(region.error(), context);
  return std::make_unique<OpenedRegion>(std::move(engine), std::move(*region));
}

}  // namespace remora::apps
