#include "mirror_log.h"

#include <array>
#include <new>
#include <string>

#include <remora/engine/log.h>

namespace remora::volume::detail {

using remora::detail::write_log_line;

namespace {

/// "disk, group 3".
std::string group_text(std::string_view volume, const std::string& group) {
  return std::string{volume} + ", group " + group;
}

}  // namespace

void log_claimed(std::string_view volume, std::uint64_t epoch, std::size_t groups) noexcept try {
  const std::string number = std::to_string(epoch);
  const std::string count = std::to_string(groups);
  const std::string text = std::string{volume} + ": claimed, writer epoch " + number + "; its " +
                           count + " groups are adopted now";
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "epoch", .value = number, .quoted = false},
                          LogField{.name = "groups", .value = count, .quoted = false}};
  write_log_line(
      {.level = LogLevel::kInfo, .text = text, .event = "mirror.claimed", .fields = fields});
} catch (const std::bad_alloc&) {
}

void log_claimed_degraded(std::string_view volume, std::size_t degraded,
                          std::size_t groups) noexcept try {
  const std::string number = std::to_string(degraded);
  const std::string count = std::to_string(groups);
  const std::string text = std::string{volume} + ": claimed, but copies are missing, in " + number +
                           " of its " + count + " groups: a repair builds them";
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "degraded", .value = number, .quoted = false},
                          LogField{.name = "groups", .value = count, .quoted = false}};
  write_log_line({.level = LogLevel::kWarning,
                  .text = text,
                  .event = "mirror.claimed_degraded",
                  .fields = fields});
} catch (const std::bad_alloc&) {
}

void log_writer_lost(std::string_view volume, std::uint64_t epoch) noexcept try {
  const std::string number = std::to_string(epoch);
  const std::string text = std::string{volume} + ": another client has claimed it; writer epoch " +
                           number + " has ended, and no write of this process takes effect";
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "epoch", .value = number, .quoted = false}};
  write_log_line(
      {.level = LogLevel::kWarning, .text = text, .event = "mirror.writer_lost", .fields = fields});
} catch (const std::bad_alloc&) {
}

void log_group_not_adopted(std::string_view volume, std::size_t group, const Error& why) noexcept
    try {
  const std::string number = std::to_string(group);
  const std::string reason = why.message();
  const std::string text = group_text(volume, number) + ": not adopted: " + reason;
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "group", .value = number, .quoted = false},
                          LogField{.name = "reason", .value = reason}};
  write_log_line({.level = LogLevel::kWarning,
                  .text = text,
                  .event = "mirror.group_not_adopted",
                  .fields = fields});
} catch (const std::bad_alloc&) {
}

void log_member_removed(std::string_view volume, std::size_t group, std::string_view server,
                        const Error& why) noexcept try {
  const std::string number = std::to_string(group);
  const std::string reason = why.message();
  const std::string text = group_text(volume, number) + ": goes on without its copy on " +
                           std::string{server} + ": " + reason;
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "group", .value = number, .quoted = false},
                          LogField{.name = "server", .value = server},
                          LogField{.name = "reason", .value = reason}};
  write_log_line({.level = LogLevel::kWarning,
                  .text = text,
                  .event = "mirror.member_removed",
                  .fields = fields});
} catch (const std::bad_alloc&) {
}

void log_member_in_sync(std::string_view volume, std::size_t group,
                        std::string_view server) noexcept try {
  const std::string number = std::to_string(group);
  const std::string text = group_text(volume, number) + ": its copy on " + std::string{server} +
                           " was built, and is in sync";
  const std::array fields{LogField{.name = "volume", .value = volume},
                          LogField{.name = "group", .value = number, .quoted = false},
                          LogField{.name = "server", .value = server}};
  write_log_line(
      {.level = LogLevel::kInfo, .text = text, .event = "mirror.member_in_sync", .fields = fields});
} catch (const std::bad_alloc&) {
}

}  // namespace remora::volume::detail
