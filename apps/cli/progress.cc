#include "cli/progress.h"

#include <algorithm>
#include <iostream>
#include <sstream>
#include <unistd.h>

#include "cli/command.h"
#include "cli/human.h"

namespace remora::apps {

bool stderr_is_terminal() noexcept { return ::isatty(STDERR_FILENO) == 1; }

void draw_line(const std::string& text) { std::cerr << "\r\033[K" << text << std::flush; }

Progress::Progress(std::string label, std::optional<std::uint64_t> total_bytes,
                   std::uint64_t begin_bytes)
    : label_{std::move(label)},
      total_bytes_{total_bytes},
      begin_bytes_{begin_bytes},
      enabled_{stderr_is_terminal()} {}

void Progress::finish() {
  if (drawn_) draw_line("");
  drawn_ = false;
}

void Progress::update(std::uint64_t done_bytes) {
  using std::chrono::duration;
  const auto now = Clock::now();
  if (!enabled_ || now - drawn_at_ < std::chrono::milliseconds{100}) return;
  drawn_at_ = now;
  drawn_ = true;
  const std::uint64_t fresh_bytes = done_bytes - std::min(done_bytes, begin_bytes_);
  const double rate = static_cast<double>(fresh_bytes) / duration<double>(now - start_).count();
  std::ostringstream line;
  line << label_ << "  " << human_bytes(static_cast<double>(done_bytes));
  if (total_bytes_ && *total_bytes_ > 0) {
    constexpr std::uint64_t kWidth = 30;
    const std::uint64_t done = std::min(done_bytes, *total_bytes_);
    const double share = static_cast<double>(done) / static_cast<double>(*total_bytes_);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(kWidth));
    const double left = static_cast<double>(*total_bytes_ - done);
    line << " of " << human_bytes(static_cast<double>(*total_bytes_)) << "  ["
         << std::string(filled, '#') << std::string(kWidth - filled, '.') << "]  "
         << static_cast<int>(share * 100) << "%  " << human_rate(rate);
    if (rate > 0) line << "  " << static_cast<std::uint64_t>(left / rate) << " s left";
  } else {
    line << "  " << human_rate(rate);
  }
  draw_line(line.str());
}

}  // namespace remora::apps
