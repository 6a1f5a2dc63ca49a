#pragma once

/// The contents of the file of a FileStore.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <remora/result.h>
#include <remora/volume/metadata_store.h>

namespace remora::volume {

struct FileEntry {
  std::string value{};
  std::uint64_t revision = 0;
  LeaseId lease = kNoLease;
};

struct FileLease {
  std::uint64_t lifetime_s = 0;
  std::uint64_t ends_ms = 0;  ///< CLOCK_BOOTTIME
  std::string boot{};         ///< of the host
};

struct FileContents {
  std::uint64_t revision = 0;
  std::map<std::string, FileEntry, std::less<>> entries{};
  std::map<LeaseId, FileLease> leases{};

  /// Removes leases that have ended, and their entries.
  void expire(std::uint64_t now_ms, std::string_view boot);
  void end_lease(LeaseId lease);
  [[nodiscard]] bool holds(const Compare& compare) const;
  [[nodiscard]] std::string to_json() const;
  /// Errors: kProtocol, kUnsupported.
  static Result<FileContents> parse(std::string_view path, std::string_view json);
};

/// CLOCK_BOOTTIME.
[[nodiscard]] std::uint64_t boot_time_ms() noexcept;
/// Of this boot of the host.
[[nodiscard]] const std::string& host_boot_id();

}  // namespace remora::volume
