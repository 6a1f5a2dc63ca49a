#pragma once

/// The calls of an object that a process has made, as a child of fork(2) may make them. Internal.

#include <cerrno>
#include <cstdint>

#include <remora/owned.h>
#include <remora/verbs/provider.h>

namespace remora::verbs::detail {

/// The errno of a refused call; no verbs call of the libraries sets it.
inline constexpr int kForkedErrno = EOWNERDEAD;

/// Every call that would ask for something fails with kForkedErrno; what would destroy, free or
/// acknowledge succeeds and does nothing.
[[nodiscard]] const Provider& provider_of_parents() noexcept;

/// The table of calls for what is made here, until a child of this process has it.
class ProcessProvider {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): stands in for the pointer.
  ProcessProvider(const Provider* table) noexcept : table_{table} {}

  /// A parent process made it.
  [[nodiscard]] bool foreign() const noexcept { return made_in_ != remora::detail::this_process(); }
  [[nodiscard]] const Provider& operator*() const noexcept {
    return foreign() ? provider_of_parents() : *table_;
  }
  [[nodiscard]] const Provider* operator->() const noexcept { return &**this; }
  /// In whatever process.
  [[nodiscard]] const Provider* table() const noexcept { return table_; }

 private:
  const Provider* table_;
  std::uint32_t made_in_ = remora::detail::made_here();
};

}  // namespace remora::verbs::detail
