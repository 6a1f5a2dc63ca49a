#include "rules.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/units.h>

#include "client_rules.h"
#include "cluster_rules.h"
#include "keys.h"
#include "text.h"

namespace remora::config {
namespace {

bool is_device(std::string_view atomics) {
  return atomics != "auto" && atomics != "none" && atomics != "cpu";
}

bool is_one_of(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string one_after_another(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

void check_listen(const ServerConfig& config, Report& report) {
  if (report.good("listen.address") && report.good("auth") && !config.auth &&
      !is_loopback(config.listen.address))
    report.fault("auth", "required, since listen.address " + in_quotes(config.listen.address) +
                             " is not a loopback address: 'keys' asks clients for theirs, 'none' "
                             "lets in every client that can connect");
  if (!report.good("listen") || !report.good("listen.address") || !report.good("listen.port") ||
      !report.good("metrics.address") || !config.metrics.address)
    return;
  const auto metrics = parse_endpoint(*config.metrics.address);
  if (metrics && metrics->address == config.listen.address && metrics->port == config.listen.port)
    report.fault("metrics.address",
                 "the same address and port as listen: the endpoint needs a port of its own");
}

void check_transports(const ServerConfig& config, Report& report) {
  const Transports& transports = config.transports;
  const bool rdma_good = report.good("transports.rdma");
  if (rdma_good && report.good("transports.shm") && report.good("transports.tcp") &&
      transports.rdma == Availability::kOff && transports.shm == Availability::kOff &&
      transports.tcp == Availability::kOff)
    report.fault("transports", "every transport is off: turn one on, or clients cannot connect");
  if (rdma_good && report.good("transports.rdma_device") && transports.rdma == Availability::kOff &&
      !transports.rdma_devices.empty())
    report.fault("transports.rdma_device", "has no use while transports.rdma is off: remove one");
}

void check_pool(const ServerConfig& config, Report& report) {
  const Pool& pool = config.pool;
  std::uint64_t page_bytes = kPoolPageBytes;
  if (report.good("pool.huge_pages") && pool.huge_pages == HugePages::kRequire)
    page_bytes = kHugePageBytes;
  if (report.good("pool.huge_pages") && pool.huge_pages == HugePages::kRequire1GiB)
    page_bytes = kGibPageBytes;
  const std::string why =
      page_bytes == kPoolPageBytes
          ? ""
          : ", since huge_pages is '" + std::string{to_string(pool.huge_pages)} + "'";
  const auto whole_pages = [&](const std::string& path, std::uint64_t bytes) {
    if (report.good(path) && bytes % page_bytes != 0)
      report.fault(path, "must be a multiple of " + format_size(page_bytes) + why + ", found " +
                             format_size(bytes));
  };
  whole_pages("pool.size", pool.size_bytes);
  whole_pages("pool.piece", pool.piece_bytes);
  if (!report.good("pool.size") || !report.good("pool.piece")) return;
  const std::uint64_t pieces = (pool.size_bytes + pool.piece_bytes - 1) / pool.piece_bytes;
  if (pieces > kPoolPiecesMax)
    report.fault("pool.piece", "cuts the pool into " + std::to_string(pieces) +
                                   " pieces, more than " + std::to_string(kPoolPiecesMax) +
                                   ": make pieces larger");
}

void check_region_atomics(const ServerConfig& config, const std::string& path,
                          const RegionConfig& region, Report& report) {
  const std::string key = path + ".atomics";
  if (!report.good(key)) return;
  // In a struct the right is set by default, so only a file can contradict itself.
  if (region.atomics == "none" && report.good(path + ".rights") &&
      report.written(path + ".rights") && region.rights.atomic)
    report.fault(path + ".rights", "names 'atomic', but the region's atomics are 'none'");
  if (!is_device(region.atomics) || !report.good("transports.rdma")) return;
  if (config.transports.rdma == Availability::kOff)
    report.fault(
        key, "names the RDMA device " + in_quotes(region.atomics) + ", but transports.rdma is off");
  else if (report.good("transports.rdma_device") && !config.transports.rdma_devices.empty() &&
           !is_one_of(config.transports.rdma_devices, region.atomics))
    report.fault(key, "names the RDMA device " + in_quotes(region.atomics) +
                          ", but transports.rdma_device is " +
                          in_quotes(one_after_another(config.transports.rdma_devices)));
}

void check_region(const ServerConfig& config, std::size_t index, Report& report) {
  const RegionConfig& region = config.regions[index];
  const std::string path = region_path(index);
  const std::string block = path + ".block";
  const std::string size = path + ".size";
  if (report.good(block) && !std::has_single_bit(region.block_bytes))
    report.fault(block, "must be a power of two, found " + format_size(region.block_bytes));
  if (report.good(block) && report.good(size) && region.size_bytes % region.block_bytes != 0)
    report.fault(size, "must be a multiple of the block size " + format_size(region.block_bytes) +
                           ", found " + format_size(region.size_bytes));
  if (report.good(path + ".shm") && report.good("transports.shm") && region.shm &&
      config.transports.shm == Availability::kOff)
    report.fault(path + ".shm", "is true, but transports.shm is off: turn it on or remove this");
  check_region_atomics(config, path, region, report);
}

void check_region_names(const ServerConfig& config, Report& report) {
  std::map<std::string_view, std::size_t> first;
  for (std::size_t i = 0; i < config.regions.size(); ++i) {
    const std::string path = region_path(i) + ".name";
    if (!report.good(path)) continue;
    const auto [entry, is_new] = first.emplace(config.regions[i].name, i);
    if (is_new) continue;
    const std::string other = region_path(entry->second);
    const std::size_t line = report.place(other + ".name").line;
    report.fault(path, "the name " + in_quotes(config.regions[i].name) + " is taken by " + other +
                           (line == 0 ? "" : " in line " + std::to_string(line)));
  }
}

void check_region_sum(const ServerConfig& config, Report& report) {
  if (!report.good("pool.size")) return;
  // With 'try' the page size is known only at the start.
  const HugePages asked = config.pool.huge_pages;
  const bool huge = report.good("pool.huge_pages") &&
                    (asked == HugePages::kRequire || asked == HugePages::kRequire1GiB);
  const std::uint64_t page_bytes = huge ? kHugePageBytes : kPoolPageBytes;
  std::uint64_t sum_bytes = 0;  // at most 65536 x 64 TiB = 2^62
  for (std::size_t i = 0; i < config.regions.size(); ++i) {
    if (!report.good(region_path(i) + ".size")) return;
    const std::uint64_t pages = (config.regions[i].size_bytes + page_bytes - 1) / page_bytes;
    sum_bytes += pages * page_bytes;
  }
  if (sum_bytes > config.pool.size_bytes)
    report.fault("pool.size", "the regions need " + format_size(sum_bytes) +
                                  (huge ? " of 2MiB pages" : "") + ", the pool has " +
                                  format_size(config.pool.size_bytes));
}

void check_regions(const ServerConfig& config, Report& report) {
  if (!report.good("regions")) return;
  for (std::size_t i = 0; i < config.regions.size(); ++i) check_region(config, i, report);
  check_region_names(config, report);
  check_region_sum(config, report);
  if (report.good("limits.regions_max") && config.regions.size() > config.limits.regions_max)
    report.fault("limits.regions_max", "the file has " + std::to_string(config.regions.size()) +
                                           " regions, more than the " +
                                           std::to_string(config.limits.regions_max) + " allowed");
}

void check_metrics(const ServerConfig& config, Report& report) {
  const Metrics& metrics = config.metrics;
  const bool secret_good = report.good("metrics.password") && report.good("metrics.password_file");
  if (!report.good("metrics") || !report.good("metrics.user") || !secret_good) return;
  // A struct filled by hand, for which no function has read the file: every reader would be
  // accepted.
  if (report.good("metrics.token_file") && !metrics.token_file.empty() && metrics.token.empty() &&
      report.good("metrics.token"))
    report.fault("metrics.token_file", "has not been read: load_server() does, else set token");
  if (!metrics.password_file.empty() && metrics.password.empty())
    report.fault("metrics.password_file",
                 "has not been read: load_server() does, else set password");
  if (metrics.user.empty() && !metrics.password.empty())
    report.fault("metrics.password", "of no user: give metrics.user too");
  if (!metrics.user.empty() && metrics.password.empty())
    report.fault("metrics.user", "has no password: give metrics.password or metrics.password_file");
}

}  // namespace

std::string region_path(std::size_t index) { return "regions[" + std::to_string(index) + "]"; }

void check_rules(const ServerConfig& config, Report& report) {
  check_listen(config, report);
  check_transports(config, report);
  check_pool(config, report);
  check_regions(config, report);
  check_metrics(config, report);
  check_clients(config, report);
  check_cluster(config, report);
}

Diagnostics validate(const ServerConfig& config) {
  Report report{{}};
  for (const Key& key : keys()) {
    if (key.read == nullptr && key.count == nullptr) continue;
    for_each_place(config, key, [&](const std::string& path, At at) {
      if (!report.good(path)) return;
      if (key.count != nullptr) {
        if (key.count(config, at) > key.max)
          report.fault(path, range_text(key) + ", found " + std::to_string(key.count(config, at)));
        return;
      }
      const std::optional<Value> value = key.typed ? std::nullopt : key.read(config, at);
      std::string message = value ? check_value(key, *value) : std::string{};
      if (!message.empty()) report.fault(path, std::move(message));
    });
  }
  check_rules(config, report);
  return report.take();
}

}  // namespace remora::config
