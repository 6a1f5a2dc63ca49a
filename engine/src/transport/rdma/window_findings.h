#pragma once

/// The findings about a device: whether its type-2 memory windows isolate clients.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace remora::transport::rdma {

enum class Verdict : std::uint8_t {
  kKept,      ///< every forbidden access was refused, or had no effect
  kBroken,    ///< a forbidden access succeeded; `reason` says which
  kUntested,  ///< the check was not possible; `reason` says why
};
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct WindowCheck {
  std::string_view name;
  Verdict verdict = Verdict::kUntested;
  std::string reason{};  ///< empty when kept
};

/// The findings about a device.
struct WindowFindings {
  /// A window's key reaches nothing before the window, behind it, or across either end.
  WindowCheck range{"range"};
  /// A window's key gives no more rights than the window was bound with, and the registration's key
  /// gives none.
  WindowCheck rights{"rights"};
  /// A window's key is useless on another queue pair.
  WindowCheck binding{"binding"};
  /// Another client's SEND_WITH_INV does not invalidate the window.
  WindowCheck invalidation{"foreign invalidation"};
  /// The device reports that it has no windows, so a missing finding is no fault.
  bool no_windows = false;

  /// Findings without any check, for `reason`.
  [[nodiscard]] static WindowFindings untested(const std::string& reason);

  [[nodiscard]] std::array<const WindowCheck*, 4> checks() const noexcept {
    return {&range, &rights, &binding, &invalidation};
  }
  [[nodiscard]] bool all_kept() const noexcept;
  /// The first check that did not pass; null: all passed.
  [[nodiscard]] const WindowCheck* first_not_kept() const noexcept;
  /// Whether every check was made: another test would find the same.
  [[nodiscard]] bool conclusive() const noexcept;
  /// "range broken: a read of 8 bytes ...; binding kept".
  [[nodiscard]] std::string text() const;
};

}  // namespace remora::transport::rdma
