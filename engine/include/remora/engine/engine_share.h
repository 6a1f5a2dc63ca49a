#pragma once

/// A share of an engine, for parts of the library that outlive the application's Engine object,
/// such as a mirrored volume. Applications use Engine.

#include <string_view>

#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::detail {

/// Keeps the sessions, threads and memory of an engine alive, as a region does: the Engine object
/// may be moved, and may end before. After its end the engine's handlers do not run any more, and
/// all functions here go on. The share of an engine that was moved from, and every share in a child
/// of fork(2), answers kClosed. Copyable, thread-safe.
class EngineShare {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): stands in for the engine.
  EngineShare(const Engine& engine) noexcept : core_{engine.core_} {}

  /// As the functions of Engine.
  Result<Region> open_region(std::string_view uri, Rights rights) const;
  Result<Region> fence_region(std::string_view uri, Rights rights) const;
  Result<Session> connect(std::string_view uri) const;
  [[nodiscard]] metrics::Registry& registry() const noexcept;

 private:
  OwnedShared<EngineCore> core_;
};

}  // namespace remora::detail
