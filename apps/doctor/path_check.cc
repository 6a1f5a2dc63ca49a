#include "doctor/path_check.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cli/human.h"
#include "doctor/path_place.h"

namespace remora::apps::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kScratchBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kSwapOffset = 8192;
constexpr std::uint64_t kStreamBytes = std::uint64_t{256} << 10U;
constexpr int kLatencyReads = 200;
constexpr int kStreamReads = 64;
/// The time of each of the two measurements.
constexpr std::chrono::seconds kMeasureFor{1};

std::string label(TransportKind transport) { return std::string{to_string(transport)}; }

Finding step_done(TransportKind transport, std::string_view step, std::string found) {
  return {.id = "path." + label(transport) + "." + std::string{step},
          .found = label(transport) + ": " + std::move(found)};
}

std::string address_text(const addrinfo& entry) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(entry.ai_addr, entry.ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "?";
  return text.data();
}

/// The local address from which packets to `entry` are sent, or errno. Sends nothing.
struct RouteAnswer {
  std::string source{};
  int error = 0;
};
RouteAnswer route_to(const addrinfo& entry) {
  const int descriptor = ::socket(entry.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {.error = errno};
  RouteAnswer answer;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (::connect(descriptor, entry.ai_addr, entry.ai_addrlen) != 0 ||
      ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) != 0)
    answer.error = errno;
  ::close(descriptor);
  if (answer.error != 0) return answer;
  addrinfo source{};
  source.ai_addr = reinterpret_cast<sockaddr*>(&local);
  source.ai_addrlen = length;
  answer.source = address_text(source);
  return answer;
}

Finding route_finding(const addrinfo& entry) {
  const RouteAnswer answer = route_to(entry);
  const std::string address = address_text(entry);
  Finding finding{.id = "path.route"};
  if (answer.error == 0) {
    finding.found = "packets to " + address + " go from " + answer.source;
    return finding;
  }
  finding.colour = Colour::kYellow;
  finding.found = "no route to " + address + ": " + std::strerror(answer.error);
  finding.why = "packets do not leave this host";
  finding.command = "ip route get " + address;
  return finding;
}

/// The URI of the server, or of one of its regions, over one transport.
std::string uri_over(const Uri& uri, TransportKind transport, const std::string& region) {
  Uri over = uri;
  over.transport = transport;
  over.region = region;
  if (transport != TransportKind::kTcp) over.payload_crc = false;
  if (transport != TransportKind::kRdma) over.rdma = {};
  return over.text();
}

std::string scratch_name() {
  std::random_device device;
  return "remora-doctor-" + std::to_string(::getpid()) + "-" + std::to_string(device());
}

/// The region that the operations use.
struct Ground {
  std::string name{};
  bool created = false;
  Rights rights = Rights::kRead;
};

Result<RegionInfo> create_scratch(const Session& session, TransportKind transport) {
  RegionSpec spec;
  spec.name = scratch_name();
  spec.size_bytes = kScratchBytes;
  spec.block_bytes = kBlockBytes;
  spec.lifetime = Lifetime::kSession;
  spec.shm = transport == TransportKind::kShm;
  auto created = session.create_region(spec);
  // The device has no atomics, or the server is older.
  if (!created && created.error().code() == Code::kUnsupported) {
    spec.atomic_domain = "none";
    created = session.create_region(spec);
  }
  return created;
}

/// The region of the URI, otherwise the first region that may be read over this transport.
std::string readable_region(const Session& session, const Uri& uri, TransportKind transport) {
  if (!uri.region.empty()) return uri.region;
  const auto regions = session.regions();
  if (!regions) return {};
  for (const RegionInfo& region : *regions)
    if (includes(region.rights, Rights::kRead) && (transport != TransportKind::kShm || region.shm))
      return region.name;
  return {};
}

std::optional<Ground> find_ground(const Session& session, const Uri& uri, TransportKind transport,
                                  Findings& findings) {
  const auto created = create_scratch(session, transport);
  if (created) {
    findings.push_back(step_done(transport, "rights",
                                 "this client may create regions; a scratch region of 1 MiB is "
                                 "used, with atomics '" +
                                     created->atomic_domain + "'"));
    return Ground{created->name, true,
                  created->atomic_domain == "none" ? Rights::kReadWrite : Rights::kAll};
  }
  const std::string name = readable_region(session, uri, transport);
  Finding finding =
      step_done(transport, "rights", "no scratch region: " + created.error().message());
  finding.colour = Colour::kNotChecked;
  finding.found += name.empty() ? "; and there is no region that it may read"
                                : "; only reads are tried, in " + name;
  findings.push_back(std::move(finding));
  if (name.empty()) return std::nullopt;
  return Ground{name, false, Rights::kRead};
}

/// Writes a block, reads it back, and compares.
std::optional<Finding> try_block(const Region& region, TransportKind transport) {
  std::vector<std::byte> sent(kBlockBytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31U + 7U);
  if (const Status written = region.write(ByteOffset{0}, sent); !written)
    return broken_path(transport, written.error(), true);
  std::vector<std::byte> got(kBlockBytes);
  if (const Status read = region.read(ByteOffset{0}, got); !read)
    return broken_path(transport, read.error(), true);
  if (sent == got) return std::nullopt;
  return Finding{
      .id = "path." + label(transport) + ".operation",
      .colour = Colour::kRed,
      .found = label(transport) + ": a block that was written came back with other bytes",
      .why = "memory, a NIC or a bug changes data: do not use this path",
      .command = "remora doctor URI --report FILE   # and report it"};
}

/// The word is zero, since the region is new.
std::optional<Finding> try_swap(const Region& region, TransportKind transport) {
  const auto old = region.compare_swap(ByteOffset{kSwapOffset}, 0, 42);
  if (!old) return broken_path(transport, old.error(), true);
  if (*old == 0) return std::nullopt;
  return Finding{.id = "path." + label(transport) + ".operation",
                 .colour = Colour::kRed,
                 .found = label(transport) + ": compare-and-swap found " + std::to_string(*old) +
                          " in a region that was new",
                 .why = "a new region is filled with zeros",
                 .command = "remora doctor URI --report FILE   # and report it"};
}

struct Measured {
  double latency_ns = 0;  ///< the median
  double bytes_per_second = 0;
};

Result<Measured> measure(const Region& region) {
  Measured measured;
  std::vector<double> latencies;
  std::array<std::byte, 8> word{};
  const std::uint64_t size = region.size_bytes();
  const auto word_span = std::span<std::byte>{word}.first(std::min<std::uint64_t>(size, 8));
  const auto begin = Clock::now();
  for (int i = 0; i < kLatencyReads && Clock::now() - begin < kMeasureFor; ++i) {
    const auto from = Clock::now();
    if (const Status read = region.read(ByteOffset{0}, word_span); !read) return read.error();
    latencies.push_back(std::chrono::duration<double, std::nano>(Clock::now() - from).count());
  }
  std::sort(latencies.begin(), latencies.end());
  if (!latencies.empty()) measured.latency_ns = latencies[latencies.size() / 2];
  std::vector<std::byte> piece(std::min(size, kStreamBytes));
  std::uint64_t bytes = 0;
  const auto stream = Clock::now();
  for (int i = 0; i < kStreamReads && Clock::now() - stream < kMeasureFor; ++i) {
    if (const Status read = region.read(ByteOffset{0}, piece); !read) return read.error();
    bytes += piece.size();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - stream).count();
  if (seconds > 0) measured.bytes_per_second = static_cast<double>(bytes) / seconds;
  return measured;
}

Findings try_operations(const Region& region, TransportKind transport, bool created) {
  Findings findings;
  std::string done = "a read";
  if (created) {
    if (auto fault = try_block(region, transport)) return {std::move(*fault)};
    done = "a write and a read";
    if (region.info().atomic_domain != "none") {
      if (auto fault = try_swap(region, transport)) return {std::move(*fault)};
      done = "a write, a read and a compare-and-swap";
    }
  }
  const auto measured = measure(region);
  if (!measured) return {broken_path(transport, measured.error(), true)};
  findings.push_back(step_done(transport, "operation", done + " worked"));
  findings.push_back(step_done(transport, "speed",
                               "8 bytes are read in " + human_nanoseconds(measured->latency_ns) +
                                   " (median), 256 KiB at a time at " +
                                   human_rate(measured->bytes_per_second)));
  return findings;
}

std::string server_text(const Session& session) {
  const ServerInfo& server = session.server();
  std::string text = "the handshake is done";
  if (!server.name.empty()) text += " with " + server.name;
  if (!server.device.empty()) text += " over its device " + server.device;
  return text;
}

/// All checks of one transport. True: it works. `server`: the data that the server has sent, if it
/// has.
bool check_transport(const Engine& engine, const Uri& uri, TransportKind transport,
                     std::optional<ServerInfo>& server, Findings& findings) {
  const bool named = uri.transport != TransportKind::kAuto;
  const auto session = engine.connect(uri_over(uri, transport, ""));
  if (!session) {
    findings.push_back(broken_path(transport, session.error(), named));
    return false;
  }
  server = session->server();
  findings.push_back(step_done(transport, "handshake", server_text(*session)));
  const auto ground = find_ground(*session, uri, transport, findings);
  if (!ground) return true;
  bool works = false;
  {
    const auto region = engine.open_region(uri_over(uri, transport, ground->name), ground->rights);
    Findings tried = region ? try_operations(*region, transport, ground->created)
                            : Findings{broken_path(transport, region.error(), true)};
    works = worst(tried) != Colour::kRed;
    append(findings, std::move(tried));
  }
  if (!ground->created) return works;
  if (const Status removed = session->remove_region(ground->name, Removal::kNow); !removed)
    findings.push_back(Finding{.id = "path." + label(transport) + ".removal",
                               .colour = Colour::kYellow,
                               .found = "the scratch region " + ground->name +
                                        " was not removed: " + removed.error().message(),
                               .why = "it goes with this session",
                               .command = "remora rm URI/" + ground->name});
  return works;
}

}  // namespace

Findings check_name(const Uri& uri) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const std::string service = std::to_string(uri.port);
  const int failed = ::getaddrinfo(uri.host.c_str(), service.c_str(), &hints, &first);
  Finding finding{.id = "path.name"};
  if (failed != 0) {
    finding.colour = Colour::kRed;
    finding.found = uri.host + " has no address: " + ::gai_strerror(failed);
    finding.why = "the path breaks at the step 'name', on the side of this host";
    finding.command = "getent hosts " + uri.host + "; cat /etc/resolv.conf";
    return {finding};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{first, &::freeaddrinfo};
  finding.found = uri.host + " is";
  Findings findings{finding};
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    findings.front().found += (entry == first ? " " : ", ") + address_text(*entry);
    findings.push_back(route_finding(*entry));
  }
  return findings;
}

void excuse_absent(Findings& findings, const ServerInfo& server) {
  for (const TransportKind transport :
       {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp}) {
    if (!server.surely_lacks(transport)) continue;
    for (Finding& finding : findings) {
      if (finding.colour != Colour::kYellow) continue;
      if (!finding.id.starts_with("path." + label(transport) + ".")) continue;
      finding.colour = Colour::kNotChecked;
      finding.found += "; the server does not offer " + label(transport);
    }
  }
}

Findings check_path(const Engine& engine, const Uri& uri) {
  Findings findings = check_name(uri);
  if (worst(findings) == Colour::kRed) return findings;
  const bool named = uri.transport != TransportKind::kAuto;
  bool works = false;
  std::optional<ServerInfo> server;
  for (const TransportKind transport :
       {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp}) {
    if (named && transport != uri.transport) continue;
    works = check_transport(engine, uri, transport, server, findings) || works;
  }
  if (server) excuse_absent(findings, *server);
  if (!works && worst(findings) != Colour::kRed)
    findings.push_back(Finding{.id = "path",
                               .colour = Colour::kRed,
                               .found = "no transport reaches " + uri.server(),
                               .why = "no client of this user on this host can use that server",
                               .command = "on its host: systemctl status remora-server; ss -ltn"});
  return findings;
}

}  // namespace remora::apps::doctor
