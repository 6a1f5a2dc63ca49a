#pragma once

/// The verbs calls for objects of a parent process, as a child of fork(2) may make them. Internal.

#include <cerrno>
#include <cstdint>

#include <remora/owned.h>
#include <remora/verbs/provider.h>

namespace remora::verbs::detail {

/// The errno of a refused call; no verbs call of the libraries sets it.
inline constexpr int kForkedErrno = EOWNERDEAD;

/// Every call that requests something fails with kForkedErrno; calls that destroy, free or
/// acknowledge succeed and do nothing.
[[nodiscard]] const Provider& provider_of_parents() noexcept;

/// The table of calls for objects made in this process; in a child of this process it is replaced.
class ProcessProvider {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): stands in for the pointer.
  ProcessProvider(const Provider* table) noexcept : table_{table} {}

  /// Whether a parent process made the object.
  [[nodiscard]] bool foreign() const noexcept { return made_in_ != remora::detail::this_process(); }
  [[nodiscard]] const Provider& operator*() const noexcept {
    return foreign() ? provider_of_parents() : *table_;
  }
  [[nodiscard]] const Provider* operator->() const noexcept { return &**this; }
  /// The table, in any process.
  [[nodiscard]] const Provider* table() const noexcept { return table_; }

 private:
  const Provider* table_;
  std::uint32_t made_in_ = remora::detail::made_here();
};

}  // namespace remora::verbs::detail
