#pragma once

/// What is known of a device: whether its type-2 memory windows keep clients apart.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace remora::transport::rdma {

enum class Verdict : std::uint8_t {
  kKept,      ///< every attempt was refused, or did no harm
  kBroken,    ///< one was not; `reason` says which
  kUntested,  ///< `reason` says what kept it from being tried
};
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct WindowCheck {
  std::string_view name;
  Verdict verdict = Verdict::kUntested;
  std::string reason{};  ///< empty when kept
};

/// What was found of a device.
struct WindowFindings {
  /// A window's key reaches nothing before it, behind it, or across either end.
  WindowCheck range{"range"};
  /// It allows no more than the window was bound for, and the key of the registration nothing.
  WindowCheck rights{"rights"};
  /// It is of no use on another queue pair.
  WindowCheck binding{"binding"};
  /// Another client's SEND_WITH_INV does not take it away.
  WindowCheck invalidation{"foreign invalidation"};
  /// The device says that it has no windows: nothing is missing then that it could have told.
  bool no_windows = false;

  /// None could be tried, and why.
  [[nodiscard]] static WindowFindings untested(const std::string& reason);

  [[nodiscard]] std::array<const WindowCheck*, 4> checks() const noexcept {
    return {&range, &rights, &binding, &invalidation};
  }
  [[nodiscard]] bool all_kept() const noexcept;
  /// Null: they all are.
  [[nodiscard]] const WindowCheck* first_not_kept() const noexcept;
  /// Nothing was left untested: asking again would find the same.
  [[nodiscard]] bool conclusive() const noexcept;
  /// "range broken: a read of 8 bytes ...; binding kept".
  [[nodiscard]] std::string text() const;
};

}  // namespace remora::transport::rdma
