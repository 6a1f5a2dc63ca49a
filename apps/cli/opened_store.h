#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <variant>

#include <remora/remora.h>
#include <remora/volume/volume.h>

#include "cli/command.h"
#include "cli/pipeline.h"

namespace remora::apps {

/// A region or a volume that a command has opened, with its engine.
class OpenedStore {
 public:
  /// `uri`: of a region, or of a volume.
  static tl::expected<OpenedStore, Failure> open(const Globals& globals, const std::string& uri,
                                                 Rights rights);

  [[nodiscard]] std::uint64_t size_bytes() const;
  /// "region cache", "volume scratch".
  [[nodiscard]] std::string name() const;
  /// As the functions of pipeline.h.
  [[nodiscard]] Transferred download(std::uint64_t offset, std::uint64_t length,
                                     const Consumer& consumer) const;
  [[nodiscard]] Transferred upload(std::uint64_t offset, std::uint64_t limit_bytes,
                                   const Producer& producer) const;
  [[nodiscard]] Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected,
                                                   std::uint64_t desired) const;
  [[nodiscard]] Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta) const;

 private:
  using Store = std::variant<Region, volume::Volume>;
  OpenedStore(Engine engine, Store store) : engine_{std::move(engine)}, store_{std::move(store)} {}

  Engine engine_;
  Store store_;
};

}  // namespace remora::apps
