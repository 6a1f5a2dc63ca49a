#include "cli/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/human.h"

namespace remora::apps {
namespace {

constexpr std::string_view kOperations = "remora_client_operations_total";
constexpr std::string_view kLatency = "remora_client_operation_latency_seconds";
constexpr std::size_t kSparks = 30;
constexpr std::size_t kMaxNames = 8;

/// Latencies have one name for both atomics, operations have two.
LabelFilter latency_of(const std::string& transport, const std::string& op) {
  return {{"transport", transport}, {"op", op == "cas" || op == "add" ? "atomic" : op}};
}

// --- cells ---------------------------------------------------------------------------------------

std::string dash_or(double value, std::string (*shown)(double)) {
  return std::isnan(value) ? "-" : value == 0 ? "0" : shown(value);
}
std::string operations_text(double value) { return dash_or(value, human_operations); }
std::string rate_text(double value) { return dash_or(value, human_rate); }
std::string bytes_text(double value) { return dash_or(value, human_bytes); }
std::string seconds_text(double value) {
  return std::isnan(value) ? "-" : human_nanoseconds(value * 1e9);
}
std::string count_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value == std::trunc(value) ? "%.0f" : "%.2f", value);
  return std::isnan(value) ? "-" : text.data();
}

/// Text that may come from a peer, without characters that control a terminal.
std::string harmless(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return out;
}

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return "";
  return harmless(found->is_string() ? found->get<std::string>() : found->dump());
}

double number_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

const Json& list_of(const Json& object, const char* name) {
  static const Json empty = Json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : empty;
}

// --- tables --------------------------------------------------------------------------------------

/// Rows of cells; columns are as wide as their widest cell. The first column is flush left, the
/// others flush right, except those in `left`.
class Table {
 public:
  explicit Table(std::vector<std::string> head, std::vector<std::size_t> left = {})
      : left_{std::move(left)} {
    rows_.push_back(std::move(head));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }

  void append_to(std::vector<std::string>& lines) const {
    if (empty()) return;
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], columns_of(row[i]));
    lines.emplace_back();
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string pad(widths[i] - columns_of(row[i]), ' ');
        const bool left = i == 0 || std::find(left_.begin(), left_.end(), i) != left_.end();
        line += i == 0 ? " " : "  ";
        line += left ? row[i] + pad : pad + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      lines.push_back(std::move(line));
    }
  }

 private:
  std::vector<std::size_t> left_;
  std::vector<std::vector<std::string>> rows_;
};

// --- a client's ----------------------------------------------------------------------------------

/// Operations that did not end well, in a second.
double failures(const TopSeries& series, const LabelFilter& labels) {
  double sum = 0;
  bool any = false;
  for (const std::string& status : series.values_of(kOperations, "status")) {
    if (status == "ok") continue;
    LabelFilter with = labels;
    with["status"] = status;
    const double rate = series.rate(kOperations, with);
    if (std::isnan(rate)) continue;
    sum += rate;
    any = true;
  }
  return any ? sum : std::nan("");
}

std::string recent_operations(const TopSeries& series, const LabelFilter& labels) {
  std::vector<double> rates;
  for (std::size_t ago = kSparks; ago-- > 0;)
    rates.push_back(series.rate(kOperations, labels, "values", ago));
  return sparkline(rates);
}

Table operations_table(const TopSeries& series) {
  Table table{{"OPERATIONS", "rate", "p50", "p99", "p99.9", "max", "errors", "last minute"}, {7}};
  for (const std::string& transport : series.values_of(kOperations, "transport"))
    for (const std::string& op : series.values_of(kOperations, "op")) {
      const LabelFilter labels{{"transport", transport}, {"op", op}};
      const double all = series.last(kOperations, labels);
      if (std::isnan(all) || all == 0) continue;
      const auto latency = [&](const char* column) {
        return seconds_text(series.latest_max(kLatency, latency_of(transport, op), column));
      };
      table.add({harmless(std::string{transport}.append(" ").append(op)),
                 operations_text(series.rate(kOperations, labels)), latency("p50"), latency("p99"),
                 latency("p999"), latency("max"), operations_text(failures(series, labels)),
                 recent_operations(series, labels)});
    }
  return table;
}

Table queues_table(const TopSeries& series) {
  Table table{{"QUEUES", "bytes read", "written", "cq", "high", "capacity", "sq", "high",
               "wr/doorbell", "lanes"}};
  constexpr std::string_view kRead = "remora_client_read_bytes_total";
  for (const std::string& transport : series.values_of(kRead, "transport")) {
    const LabelFilter labels{{"transport", transport}};
    const auto gauge = [&](const char* name) { return count_text(series.last(name, labels)); };
    table.add({harmless(transport), rate_text(series.rate(kRead, labels)),
               rate_text(series.rate("remora_client_written_bytes_total", labels)),
               gauge("remora_client_cq_depth"), gauge("remora_client_cq_depth_high_water"),
               gauge("remora_client_cq_capacity"), gauge("remora_client_send_queue_occupancy"),
               gauge("remora_client_send_queue_occupancy_high_water"),
               count_text(series.latest_max("remora_client_doorbell_work_requests", labels, "p50")),
               gauge("remora_client_lanes")});
  }
  return table;
}

Table cache_table(const TopSeries& series) {
  constexpr std::string_view kAcquires = "remora_client_mr_cache_acquires_total";
  Table table{{"MR CACHE", "hits", "misses", "ends", "pinned", "kept"}};
  for (const std::string& device : series.values_of(kAcquires, "device")) {
    const LabelFilter labels{{"device", device}};
    const auto acquires = [&](const char* result) {
      return operations_text(series.rate(kAcquires, {{"device", device}, {"result", result}}));
    };
    table.add({harmless(device), acquires("hit"), acquires("miss"),
               operations_text(series.rate("remora_client_mr_cache_ends_total", labels)),
               bytes_text(series.last("remora_client_mr_cache_pinned_bytes", labels)),
               count_text(series.last("remora_client_mr_cache_kept", labels))});
  }
  return table;
}

Table volumes_table(const TopSeries& series) {
  Table table{{"VOLUMES", "open", "groups ok", "unreachable", "lost", "revoked", "revision"}};
  constexpr std::string_view kVolumes = "remora_client_volumes";
  if (!series.has(kVolumes)) return table;
  const auto groups = [&](const char* state) {
    return count_text(series.last("remora_client_volume_groups", {{"state", state}}));
  };
  table.add({"", count_text(series.last(kVolumes)), groups("ok"), groups("unreachable"),
             groups("lost"), groups("revoked"),
             count_text(series.last("remora_client_volume_metadata_revision"))});
  return table;
}

Table mirrors_table(const TopSeries& series) {
  Table table{{"MIRRORS", "claimed", "in sync", "degraded", "promoting", "lost", "unadopted",
               "to copy", "copied", "removed", "confirm p99"}};
  constexpr std::string_view kWriters = "remora_client_mirror_writers";
  if (!series.has(kWriters)) return table;
  const auto groups = [&](const char* state) {
    return count_text(series.last("remora_client_mirror_groups", {{"state", state}}));
  };
  table.add({"", count_text(series.last(kWriters)), groups("in_sync"), groups("degraded"),
             groups("promoting"), groups("lost"), groups("unadopted"),
             bytes_text(series.last("remora_client_mirror_resync_bytes")),
             rate_text(series.rate("remora_client_mirror_copied_bytes_total")),
             count_text(series.last("remora_client_mirror_members_removed_total")),
             seconds_text(series.latest_max("remora_client_mirror_confirmation_latency_seconds", {},
                                            "p99"))});
  return table;
}

Table servers_table(const Json& status) {
  Table table{{"SERVER", "transport", "lanes", "regions", "why"}, {1, 3, 4}};
  for (const Json& session : list_of(status, "sessions")) {
    std::string regions;
    const Json& names = list_of(session, "regions");
    for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i)
      regions += (i == 0 ? "" : ",") +
                 harmless(names[i].is_string() ? names[i].get<std::string>() : names[i].dump());
    if (names.size() > kMaxNames) regions += " +" + std::to_string(names.size() - kMaxNames);
    table.add({text_of(session, "server"), text_of(session, "transport"), text_of(session, "lanes"),
               regions, text_of(session, "reason")});
  }
  return table;
}

// --- a server's ----------------------------------------------------------------------------------

Table pool_table(const TopTarget& target) {
  Table table{{"POOL", "size", "used", "freeing", "regions", "sessions", "grants", "control",
               "errors", "p99"}};
  const TopSeries& series = target.series;
  const auto pool = target.status.find("pool");
  if (pool == target.status.end() || !pool->is_object()) return table;
  const double size = number_of(*pool, "size_bytes");
  const double used = number_of(*pool, "used_bytes");
  constexpr std::string_view kRequests = "remora_server_control_requests_total";
  table.add(
      {"", bytes_text(size),
       bytes_text(used) + (size > 0 ? " " + count_text(std::round(100 * used / size)) + "%" : ""),
       bytes_text(number_of(*pool, "freeing_bytes")), text_of(target.status, "regions_total"),
       text_of(target.status, "sessions_total"), count_text(series.last("remora_server_grants")),
       operations_text(series.rate(kRequests)),
       operations_text(series.rate(kRequests, {{"status", "error"}})),
       seconds_text(series.latest_max("remora_server_control_latency_seconds", {}, "p99"))});
  return table;
}

/// The registration of a server, and the store of its cluster.
Table cluster_table(const TopSeries& series) {
  Table table{{"CLUSTER", "lease renewed", "failures", "store p99", "errors"}};
  constexpr std::string_view kRegistered = "remora_server_cluster_registered";
  if (!series.has(kRegistered)) return table;
  table.add({series.last(kRegistered) > 0 ? "registered" : "NOT REGISTERED",
             seconds_text(series.last("remora_server_cluster_keep_alive_age_seconds")) + " ago",
             count_text(series.last("remora_server_cluster_errors_total")),
             seconds_text(series.latest_max("remora_cluster_store_latency_seconds", {}, "p99")),
             operations_text(series.rate("remora_cluster_store_errors_total"))});
  return table;
}

/// Bytes that the server has moved for a session, from `/status`; NaN if it takes no part.
double served(const Json& session) {
  const auto operations = session.find("operations");
  if (operations == session.end() || !operations->is_object()) return std::nan("");
  double sum = 0;
  for (const auto& [op, count] : operations->items())
    if (count.is_number()) sum += count.get<double>();
  return sum;
}

/// The sessions of a status by id.
std::map<std::string, const Json*> by_id(const Json& status) {
  std::map<std::string, const Json*> found;
  for (const Json& session : list_of(status, "sessions"))
    found.emplace(text_of(session, "id"), &session);
  return found;
}

Table sessions_table(const TopTarget& target) {
  Table table{{"SESSION", "transport", "age", "regions", "rate", "read", "written"}, {1}};
  struct Row {
    double rate;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
  static const Json none = Json::object();
  const auto befores = by_id(target.status_before);
  for (const Json& session : list_of(target.status, "sessions")) {
    const auto known = befores.find(text_of(session, "id"));
    const Json& before = known == befores.end() ? none : *known->second;
    const auto rate = [&](double now, double then) {
      return target.seconds_between > 0 ? (now - then) / target.seconds_between : std::nan("");
    };
    const double operations = rate(served(session), served(before));
    const auto bytes = [&](const char* name) {
      return rate_text(rate(number_of(session, name), number_of(before, name)));
    };
    rows.push_back({operations,
                    {text_of(session, "peer"), text_of(session, "transport"),
                     seconds_text(number_of(session, "age_seconds")), text_of(session, "regions"),
                     operations_text(operations), bytes("read_bytes"), bytes("written_bytes")}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return (std::isnan(a.rate) ? -1 : a.rate) > (std::isnan(b.rate) ? -1 : b.rate);
  });
  for (Row& row : rows) table.add(std::move(row.cells));
  return table;
}

Table regions_table(const Json& status) {
  Table table{{"REGION", "size", "block", "rights", "atomics", "grants"}, {3, 4}};
  for (const Json& region : list_of(status, "regions"))
    table.add({text_of(region, "name"), bytes_text(number_of(region, "size_bytes")),
               bytes_text(number_of(region, "block_bytes")), text_of(region, "rights"),
               text_of(region, "atomics"), text_of(region, "grants")});
  return table;
}

// --- all -----------------------------------------------------------------------------------------

std::string first_line(const TopTarget& target) {
  const Json& status = target.status;
  std::string line =
      harmless(target.address) + "  " + text_of(status, "kind") + " " + text_of(status, "version");
  if (const double up = number_of(status, "uptime_seconds"); !std::isnan(up))
    line += "  up " + seconds_text(up);
  if (!target.trouble.empty())
    return line + "  NO ANSWER for " + count_text(std::floor(target.silent_seconds)) +
           " s: " + harmless(target.trouble);
  const auto ready = status.find("ready");
  if (ready != status.end() && *ready == Json(true)) return line + "  ready";
  line += "  NOT READY";
  for (const Json& reason : list_of(status, "reasons"))
    line += ": " + harmless(reason.is_string() ? reason.get<std::string>() : reason.dump());
  return line;
}

void cut(std::string& line, std::size_t width) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < line.size(); ++at)
    if ((static_cast<unsigned char>(line[at]) & 0xc0U) != 0x80 && columns++ == width)
      return line.resize(at);
}

}  // namespace

std::string sparkline(const std::vector<double>& values) {
  static constexpr std::array<const char*, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double max = 0;
  for (const double value : values)
    if (!std::isnan(value)) max = std::max(max, value);
  std::string line;
  for (const double value : values) {
    if (std::isnan(value)) {
      line += ' ';
      continue;
    }
    const double share = max > 0 ? std::max(0.0, value) / max : 0;
    line += kBlocks[std::min<std::size_t>(7, static_cast<std::size_t>(share * 8))];
  }
  return line;
}

std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80;
  }));
}

std::vector<std::string> top_lines(const TopTarget& target, std::size_t width, std::size_t height) {
  std::vector<std::string> lines{first_line(target)};
  operations_table(target.series).append_to(lines);
  queues_table(target.series).append_to(lines);
  cache_table(target.series).append_to(lines);
  volumes_table(target.series).append_to(lines);
  mirrors_table(target.series).append_to(lines);
  pool_table(target).append_to(lines);
  cluster_table(target.series).append_to(lines);
  if (text_of(target.status, "kind") == "client") {
    servers_table(target.status).append_to(lines);
  } else {
    sessions_table(target).append_to(lines);
    regions_table(target.status).append_to(lines);
  }
  if (lines.size() > height) {
    const std::size_t hidden = lines.size() - height + 1;
    lines.resize(height > 0 ? height - 1 : 0);
    if (height > 0) lines.push_back(" … " + std::to_string(hidden) + " more lines");
  }
  for (std::string& line : lines) cut(line, width);
  return lines;
}

Json top_json(const TopTarget& target) {
  const auto number = [](double value) { return std::isnan(value) ? Json(nullptr) : Json(value); };
  Json document{{"address", target.address}, {"status", target.status}};
  Json& operations = document["operations"] = Json::array();
  const TopSeries& series = target.series;
  for (const std::string& transport : series.values_of(kOperations, "transport"))
    for (const std::string& op : series.values_of(kOperations, "op")) {
      const LabelFilter labels{{"transport", transport}, {"op", op}};
      if (!series.has(kOperations, labels)) continue;
      Json row{{"transport", transport},
               {"op", op},
               {"per_second", number(series.rate(kOperations, labels))},
               {"errors_per_second", number(failures(series, labels))}};
      for (const char* const column : {"p50", "p90", "p99", "p999", "max"})
        row[std::string{column} + "_seconds"] =
            number(series.latest_max(kLatency, latency_of(transport, op), column));
      operations.push_back(std::move(row));
    }
  return document;
}

}  // namespace remora::apps
