#include "server/start_progress_report.h"

#include <string>

#include <remora/config/units.h>

#include "server/log.h"
#include "server/service_manager.h"

namespace remora::apps {
namespace {

constexpr std::chrono::seconds kLogPeriod{2};
constexpr std::chrono::milliseconds kNotifyPeriod{500};
/// Longer than any step takes: populating 64 MiB, registering 1 GiB.
constexpr std::chrono::microseconds kMoreTime{std::chrono::minutes{1}};

std::string text_of(const StartProgress& progress) {
  const std::string total = config::format_size(progress.total_bytes);
  const std::string part =
      std::to_string(progress.done_bytes >> 20U) + "MiB of " + total + ", " +
      std::to_string(progress.total_bytes == 0
                         ? 100
                         : static_cast<int>(100.0 * static_cast<double>(progress.done_bytes) /
                                            static_cast<double>(progress.total_bytes))) +
      "%";
  switch (progress.step) {
    case StartProgress::Step::kPool: return "populating the pool: " + part;
    case StartProgress::Step::kDevices: return "registering the pool with devices: " + part;
    case StartProgress::Step::kRegions: return "creating the regions: " + part;
  }
  return {};
}

}  // namespace

void StartProgressReport::tell(const StartProgress& progress) {
  const Clock::time_point now = Clock::now();
  const bool other_step = progress.step != step_;
  step_ = progress.step;
  const bool notifies = other_step || now - notified_ >= kNotifyPeriod;
  const bool logs = now - logged_ >= kLogPeriod;
  if (!notifies && !logs) return;
  const std::string text = text_of(progress);
  if (logs) {
    logged_ = now;
    log_info("server.start_progress", text,
             {{"done_bytes", std::to_string(progress.done_bytes), false},
              {"total_bytes", std::to_string(progress.total_bytes), false}});
  }
  if (!notifies) return;
  notified_ = now;
  // Does not wait for room: the next report contains this one.
  notify_service_manager(
      "STATUS=" + text + "\nEXTEND_TIMEOUT_USEC=" + std::to_string(kMoreTime.count()),
      std::chrono::milliseconds{0});
}

}  // namespace remora::apps
