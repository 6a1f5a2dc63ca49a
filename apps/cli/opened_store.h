#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <variant>

#include <remora/remora.h>
#include <remora/volume/volume.h>

#include "cli/command.h"
#include "cli/store_queue.h"

namespace remora::apps {

/// Refuses a URI that is none, or that names neither a region nor a volume.
[[nodiscard]] tl::expected<void, Failure> check_store_uri(const std::string& uri);
/// The members by which a journal of --resume tells one region or volume from others. `uri`: one
/// that check_store_uri() takes.
[[nodiscard]] Json store_names(const std::string& uri);

/// A region or a volume that a command has opened, with its engine.
class OpenedStore {
 public:
  /// `uri`: of a region, or of a volume. `context` names the action and its object in a failure.
  static tl::expected<OpenedStore, Failure> open(const Globals& globals, const std::string& uri,
                                                 Rights rights, std::string_view context = {},
                                                 EngineOptions options = {});

  [[nodiscard]] const Engine& engine() const noexcept { return *engine_; }
  [[nodiscard]] std::uint64_t size_bytes() const;
  /// "region", "volume".
  [[nodiscard]] std::string_view kind() const noexcept;
  /// "region cache", "volume scratch".
  [[nodiscard]] std::string name() const;
  /// "tcp"; of a volume whose servers are reached over several transports: "rdma,tcp".
  [[nodiscard]] std::string transport() const;
  /// Whether it is mapped memory, to which there is one way.
  [[nodiscard]] bool mapped() const noexcept;
  /// Whether every session is connected.
  [[nodiscard]] bool connected() const;
  /// The contiguous bytes that lie on all servers together; 0: on one server.
  [[nodiscard]] std::uint64_t row_bytes() const noexcept;
  /// The members that must be the same for a transfer of these bytes to continue. A number is 0 if
  /// the server does not tell it.
  [[nodiscard]] Json identity(std::uint64_t offset, std::uint64_t length) const;

  /// Errors: those of Region::queue() and Volume::queue().
  [[nodiscard]] Result<StoreQueue> queue(std::size_t depth) const;
  [[nodiscard]] Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected,
                                                   std::uint64_t desired) const;
  [[nodiscard]] Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta) const;

 private:
  using Store = std::variant<Region, volume::Volume>;
  OpenedStore(std::unique_ptr<Engine> engine, Store store)
      : engine_{std::move(engine)}, store_{std::move(store)} {}
  /// Null: it is a volume.
  [[nodiscard]] const Region* region() const noexcept { return std::get_if<Region>(&store_); }
  [[nodiscard]] const volume::Volume& opened_volume() const {
    return std::get<volume::Volume>(store_);
  }

  std::unique_ptr<Engine> engine_;  // stays in its place: an open mirror uses it
  Store store_;                     // ends before its engine
};

}  // namespace remora::apps
