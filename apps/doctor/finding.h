#pragma once

/// The result of a check of `remora doctor`.
///
/// Thread safety: values and pure functions.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remora::apps::doctor {

enum class Colour : std::uint8_t {
  kGreen,
  kNotChecked,  ///< it cannot be checked here; `root_adds` says whether root could
  kYellow,      ///< works, but slower or with less; or breaks later
  kRed,         ///< a requested function does not work
};
/// "green", "not checked", "yellow", "red".
[[nodiscard]] std::string_view to_string(Colour colour) noexcept;

/// One result of one check.
struct Finding {
  std::string id{};  ///< stable, for scripts: "memlock"
  Colour colour = Colour::kGreen;
  std::string found{};  ///< the observation, with its values
  std::string why{};    ///< why it matters; empty: no fault
  /// mends it, or finds its cause, in a shell; every red and yellow one has it
  std::string command{};
  std::vector<std::string> details{};  ///< lines below it: each GID with its verdict
  std::string root_adds{};             ///< what the same check finds for root; empty: nothing more
};
using Findings = std::vector<Finding>;

/// The worst colour; green without findings. kNotChecked counts as green.
[[nodiscard]] Colour worst(const Findings& findings) noexcept;
[[nodiscard]] std::size_t count(const Findings& findings, Colour colour) noexcept;
/// Adds `more` at the end.
void append(Findings& findings, Findings more);

}  // namespace remora::apps::doctor
