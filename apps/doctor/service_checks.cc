// The firewall, sockets and service unit between clients and a server of this machine.

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/checks.h"
#include "doctor/pins.h"

namespace remora::apps::doctor {
namespace {

/// UDP port of RoCE v2.
constexpr std::string_view kRocePort = "4791";
constexpr std::string_view kUnit = "remora-server.service";

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Whether the rules contain this number as a word.
bool names_number(std::string_view rules, std::string_view number) {
  for (std::size_t at = rules.find(number); at != std::string_view::npos;
       at = rules.find(number, at + 1)) {
    const std::size_t end = at + number.size();
    const bool begins = at == 0 || !is_word_character(rules[at - 1]);
    if (begins && (end == rules.size() || !is_word_character(rules[end]))) return true;
  }
  return false;
}

/// Whether a rule drops or rejects all packets that reach it.
bool ends_all(std::string_view rule) {
  constexpr std::string_view kCounter = "counter packets ";
  if (rule.starts_with(kCounter)) {
    const std::size_t bytes = rule.find(" bytes ");
    const std::size_t end = rule.find(' ', bytes == std::string_view::npos ? bytes : bytes + 7);
    rule = end == std::string_view::npos ? std::string_view{} : rule.substr(end + 1);
  }
  return rule == "drop" || rule == "reject" || rule.starts_with("reject with ");
}

/// Whether a chain of hook input drops packets that no rule accepts: by its policy, or by a last
/// rule, as in firewalld.
bool drops_input(std::string_view rules) {
  for (std::size_t at = rules.find("hook input"); at != std::string_view::npos;
       at = rules.find("hook input", at + 1)) {
    std::string_view rest = rules.substr(at);
    for (bool first = true; !rest.empty(); first = false) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (first && line.find("policy drop") != std::string_view::npos) return true;
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      if (line.starts_with('}')) break;
      if (ends_all(line)) return true;
    }
  }
  return false;
}

/// The command that opens a port, for the program that manages the rules.
std::string let_in(std::string_view rules, std::string_view protocol, std::string_view port) {
  const std::string place = std::string{port} + "/" + std::string{protocol};
  if (rules.find("table inet firewalld") != std::string_view::npos)
    return "sudo firewall-cmd --permanent --add-port=" + place + " && sudo firewall-cmd --reload";
  if (rules.find("ufw-") != std::string_view::npos) return "sudo ufw allow " + place;
  return "sudo nft add rule inet filter input " + std::string{protocol} + " dport " +
         std::string{port} + " accept";
}

/// If the kernel itself sends and receives packets of RoCE, they pass the firewall. With a NIC they
/// do not.
bool any_software(const std::vector<DeviceView>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](const DeviceView& device) { return device.software; });
}

/// The folder of the sockets by which clients and servers of this user use shm.
std::string runtime_folder(const SystemCalls& calls) {
  for (const char* const name : {"REMORA_RUNTIME_DIR", "XDG_RUNTIME_DIR"})
    if (const auto value = calls.environment(name); value && !value->empty()) return *value;
  return "/tmp/remora-" + std::to_string(calls.effective_user());
}

/// An installed unit with its drop-in files, later assignments after earlier ones.
std::optional<std::string> unit_text(const FileView& files) {
  const std::string unit{kUnit};
  std::optional<std::string> text;
  for (const char* const folder :
       {"/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/",
        "/usr/lib/systemd/system/", "/lib/systemd/system/"})
    if (!text) text = files.read(folder + unit);
  if (!text) return std::nullopt;
  const std::string drop_ins = "/etc/systemd/system/" + unit + ".d/";
  for (const std::string& name : files.list(drop_ins))
    if (name.ends_with(".conf")) *text += "\n" + files.text(drop_ins + name);
  return text;
}

/// The last assignment of a key in a unit; empty: none.
std::string unit_value(std::string_view text, std::string_view key) {
  std::string value;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with(key) && line.substr(key.size()).starts_with('='))
      value = line.substr(key.size() + 1);
  }
  return value;
}

/// systemd's sizes end in K, M, G or T, or are `infinity`, and may be SOFT:HARD.
std::uint64_t unit_bytes(std::string_view value) {
  if (value.starts_with("infinity")) return kUnlimited;
  const std::uint64_t number = leading_number(value).value_or(0);
  const std::size_t unit = value.find_first_not_of("0123456789");
  if (unit == std::string_view::npos) return number;
  switch (value[unit]) {
    case 'K': return number << 10U;
    case 'M': return number << 20U;
    case 'G': return number << 30U;
    case 'T': return number << 40U;
    default: return number;
  }
}

Finding unit_fault(std::string found, std::string why, std::string_view assignment) {
  return {.id = "unit",
          .colour = Colour::kYellow,
          .found = std::move(found),
          .why = std::move(why),
          .command = "sudo systemctl edit remora-server   # [Service], then " +
                     std::string{assignment} + "; sudo systemctl restart remora-server"};
}

}  // namespace

Findings check_firewall(const Machine& machine, const Needs& needs,
                        const std::vector<DeviceView>& devices) {
  Finding finding{.id = "firewall"};
  const std::string port = std::to_string(needs.port);
  const bool needs_roce = !needs.without_rdma() && any_software(devices);
  if (needs.server != nullptr && config::is_loopback(needs.server->listen.address)) {
    finding.found = "the server listens on this host only: no firewall stands before it";
    return {finding};
  }
  if (!machine.is_root()) {
    finding.colour = Colour::kNotChecked;
    finding.found = "the firewall's rules are visible to root alone";
    finding.root_adds =
        "whether the firewall lets TCP port " + port +
        (needs_roce ? " and UDP port " + std::string{kRocePort} + " (RoCE v2)" : "") + " in";
    return {finding};
  }
  const auto rules = machine.calls.firewall_rules();
  if (!rules) {
    finding.colour = Colour::kNotChecked;
    finding.found = "'nft list ruleset' gives no answer: nftables is not installed, or not allowed";
    return {finding};
  }
  if (!drops_input(*rules)) {
    finding.found = "no chain of nftables drops all that no rule accepts";
    return {finding};
  }
  const bool tcp = names_number(*rules, port);
  const bool roce = !needs_roce || names_number(*rules, kRocePort);
  finding.found = "nftables drops what no rule accepts";
  if (tcp && roce) {
    finding.found += "; rules name TCP port " + port;
    return {finding};
  }
  finding.colour = Colour::kYellow;
  finding.found += ", and no rule names " + (tcp ? std::string{} : "TCP port " + port) +
                   (tcp || roce ? "" : " or ") +
                   (roce ? std::string{} : "UDP port " + std::string{kRocePort} + " (RoCE v2)");
  finding.why = "clients of other hosts cannot connect: they time out";
  finding.command = tcp ? let_in(*rules, "udp", kRocePort) : let_in(*rules, "tcp", port);
  return {finding};
}

Findings check_sockets(const Machine& machine) {
  const std::string folder = runtime_folder(machine.calls);
  const std::string prefix = folder + "/";
  Finding finding{.id = "sockets"};
  const std::string listening = machine.files.text("/proc/net/unix");
  std::string stale;
  std::size_t live = 0;
  for (const std::string& name : machine.files.list(folder)) {
    if (!name.starts_with("remora-") || !name.ends_with(".sock")) continue;
    const std::string path = prefix + name;
    // Connects only if the kernel does not list the socket: a server would take the connection for
    // a client.
    if (listening.find(path) == std::string::npos &&
        machine.calls.connect_error(path) == ECONNREFUSED)
      stale += " " + path;
    else
      ++live;
  }
  finding.found = "sockets for shm in " + folder + ": " + std::to_string(live);
  if (stale.empty()) return {finding};
  finding.colour = Colour::kYellow;
  finding.found += ", and stale ones of servers that were killed:" + stale;
  finding.why = "clients over shm are refused there; the next server on that port replaces it";
  finding.command = "rm" + stale;
  return {finding};
}

Findings check_unit(const Machine& machine, const Needs& needs) {
  const auto text = unit_text(machine.files);
  if (!text) return {Finding{.id = "unit", .found = "no remora-server.service is installed"}};
  Findings findings;
  const std::string memory = unit_value(*text, "LimitMEMLOCK");
  const std::uint64_t least =
      needs.server == nullptr ? 0 : pinned_by_server(*needs.server).one_session;
  if (!needs.without_rdma() && unit_bytes(memory) != kUnlimited &&
      (least == 0 || unit_bytes(memory) < least))
    findings.push_back(
        unit_fault(memory.empty() ? "the unit has no LimitMEMLOCK=" : "LimitMEMLOCK=" + memory,
                   "what clients have open over rdma is pinned, and the limit applies to it",
                   "LimitMEMLOCK=infinity"));
  if (const std::string files = unit_value(*text, "LimitNOFILE"); files.empty())
    findings.push_back(unit_fault("the unit has no LimitNOFILE=",
                                  "the service manager's default may be too small for the clients "
                                  "that limits.sessions_max lets in",
                                  "LimitNOFILE=65536"));
  if (!needs.without_rdma() && (unit_value(*text, "PrivateDevices") == "yes" ||
                                unit_value(*text, "PrivateDevices") == "true"))
    findings.push_back(unit_fault("PrivateDevices=yes",
                                  "/dev/infiniband is not there for the service: no rdma",
                                  "PrivateDevices=no"));
  if (findings.empty())
    findings.push_back(
        Finding{.id = "unit", .found = "remora-server.service has the limits that it needs"});
  return findings;
}

}  // namespace remora::apps::doctor
