#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace remora::apps {

/// A line on a terminal with the progress of long work; not drawn if stderr is no terminal. Drawn
/// at most ten times a second; finish() or the destructor removes it.
class Progress {
 public:
  /// `total_bytes` is empty if the end is not known. `begin_bytes` were done before: the rate is
  /// that of the other bytes.
  Progress(std::string label, std::optional<std::uint64_t> total_bytes,
           std::uint64_t begin_bytes = 0);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::uint64_t done_bytes);
  /// Removes the line, so that other text can be printed.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::optional<std::uint64_t> total_bytes_;
  std::uint64_t begin_bytes_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_at_ = start_;
};

/// Whether stderr is a terminal, so that a line may be drawn and redrawn there.
[[nodiscard]] bool stderr_is_terminal() noexcept;
/// Replaces the terminal's current line by `text`; an empty text removes it.
void draw_line(const std::string& text);

}  // namespace remora::apps
