#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include <remora/remora.h>

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
  static tl::expected<std::unique_ptr<OpenedStore>, Failure> open(const Globals& globals,
                                                                  const std::string& uri,
                                                                  Rights rights,
                                                                  std::string_view context = {},
                                                                  EngineOptions options = {});
  virtual ~OpenedStore() = default;
  OpenedStore(const OpenedStore&) = delete;
  OpenedStore& operator=(const OpenedStore&) = delete;

  [[nodiscard]] const Engine& engine() const noexcept { return *engine_; }
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  /// "region", "volume".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
  /// "region cache", "volume scratch".
  [[nodiscard]] virtual std::string name() const = 0;
  /// "tcp"; of a volume whose servers are reached over several transports: "rdma,tcp".
  [[nodiscard]] virtual std::string transport() const = 0;
  /// Whether it is mapped memory, to which there is one way.
  [[nodiscard]] virtual bool mapped() const noexcept = 0;
  /// Whether every session is connected.
  [[nodiscard]] virtual bool connected() const = 0;
  /// The contiguous bytes that lie on all servers together; 0: on one server.
  [[nodiscard]] virtual std::uint64_t row_bytes() const noexcept = 0;
  /// The members that must be the same for a transfer of these bytes to continue. A number is 0 if
  /// the server does not tell it.
  [[nodiscard]] virtual Json identity(std::uint64_t offset, std::uint64_t length) const = 0;

  /// Errors: those of Region::queue() and Volume::queue().
  [[nodiscard]] virtual Result<std::unique_ptr<StoreQueue>> queue(std::size_t depth) const = 0;
  [[nodiscard]] virtual Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected,
                                                           std::uint64_t desired) const = 0;
  [[nodiscard]] virtual Result<std::uint64_t> fetch_add(ByteOffset at,
                                                        std::uint64_t delta) const = 0;

 protected:
  explicit OpenedStore(std::unique_ptr<Engine> engine) : engine_{std::move(engine)} {}

 private:
  std::unique_ptr<Engine> engine_;  // stays in its place, and ends last: an open mirror uses it
};

}  // namespace remora::apps
