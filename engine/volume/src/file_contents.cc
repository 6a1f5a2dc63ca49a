#include "file_contents.h"

#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include <remora/system_file.h>

namespace remora::volume {
namespace {

constexpr std::uint64_t kFileVersion = 1;

Error no_cluster_file(std::string_view path) {
  return Error{Code::kProtocol, "cluster file"}.with_subject(path);
}

/// Throws, as at(), if it is no number without a sign and a fraction.
std::uint64_t number_of(const nlohmann::json& object, const char* member) {
  return object.at(member).get_ref<const nlohmann::json::number_unsigned_t&>();
}

}  // namespace

std::uint64_t boot_time_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::uint64_t(now.tv_sec) * 1000 + std::uint64_t(now.tv_nsec) / 1'000'000;
}

const std::string& host_boot_id() {
  static const std::string id = [] {
    std::string text =
        remora::detail::read_file("/proc/sys/kernel/random/boot_id").value_or("unknown");
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }();
  return id;
}

void FileContents::end_lease(LeaseId lease) {
  leases.erase(lease);
  std::erase_if(entries, [&](const auto& each) { return each.second.lease == lease; });
}

void FileContents::expire(std::uint64_t now_ms, std::string_view boot) {
  for (auto lease = leases.begin(); lease != leases.end();) {
    const auto [id, state] = *lease++;
    if (state.ends_ms <= now_ms || state.boot != boot) end_lease(id);
  }
}

bool FileContents::holds(const Compare& compare) const {
  const auto found = entries.find(compare.key);
  if (found == entries.end()) return !compare.value.has_value();
  return compare.value == found->second.value;
}

std::string FileContents::to_json() const {
  // Not ordered_json, which looks for each new key among all before it.
  nlohmann::json json{{"version", kFileVersion}, {"revision", revision}};
  auto& written = json["entries"] = nlohmann::json::object();
  for (const auto& [key, entry] : entries)
    written[key] = {{"value", entry.value}, {"revision", entry.revision}, {"lease", entry.lease}};
  auto& ends = json["leases"] = nlohmann::json::object();
  for (const auto& [id, lease] : leases)
    ends[std::to_string(id)] = {
        {"lifetime_s", lease.lifetime_s}, {"ends_ms", lease.ends_ms}, {"boot", lease.boot}};
  return json.dump(1) + "\n";
}

Result<FileContents> FileContents::parse(std::string_view path, std::string_view json) {
  try {
    const auto parsed = nlohmann::json::parse(json);
    if (const auto version = number_of(parsed, "version"); version != kFileVersion)
      return Error{Code::kUnsupported, "version of a cluster's record"}
          .with_subject(path)
          .with_limit(version, kFileVersion);
    FileContents contents;
    contents.revision = number_of(parsed, "revision");
    if (!parsed.at("entries").is_object() || !parsed.at("leases").is_object())
      return no_cluster_file(path);
    for (const auto& [key, entry] : parsed.at("entries").items())
      contents.entries[key] = {entry.at("value").get<std::string>(), number_of(entry, "revision"),
                               number_of(entry, "lease")};
    for (const auto& [key, lease] : parsed.at("leases").items()) {
      LeaseId id = 0;
      const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (fault != std::errc{} || end != key.data() + key.size() || id == kNoLease)
        return no_cluster_file(path);
      contents.leases[id] = {number_of(lease, "lifetime_s"), number_of(lease, "ends_ms"),
                             lease.at("boot").get<std::string>()};
    }
    return contents;
  } catch (const nlohmann::json::exception&) {
    return no_cluster_file(path);
  }
}

}  // namespace remora::volume
