#pragma once

/// Lines of the log about mirrors. engine/docs/log-events.md lists their events.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <remora/result.h>

namespace remora::volume::detail {

// A line for which there is no memory is missing.

/// "mirror.claimed".
void log_claimed(std::string_view volume, std::uint64_t epoch, std::size_t groups) noexcept;
/// "mirror.claimed_degraded": of the `groups` of a volume that a program has claimed, `degraded`
/// lack a copy.
void log_claimed_degraded(std::string_view volume, std::size_t degraded,
                          std::size_t groups) noexcept;
/// "mirror.writer_lost".
void log_writer_lost(std::string_view volume, std::uint64_t epoch) noexcept;
/// "mirror.group_not_adopted".
void log_group_not_adopted(std::string_view volume, std::size_t group, const Error& why) noexcept;
/// "mirror.member_removed".
void log_member_removed(std::string_view volume, std::size_t group, std::string_view server,
                        const Error& why) noexcept;
/// "mirror.member_in_sync".
void log_member_in_sync(std::string_view volume, std::size_t group,
                        std::string_view server) noexcept;

}  // namespace remora::volume::detail
