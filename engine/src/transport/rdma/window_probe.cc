#include "transport/rdma/window_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <remora/verbs/verbs.h>

#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

namespace {

using verbs::Access;

/// The probe's own memory: a page before the window, the window, and the pages behind it.
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLeasedBytes = 4 * kPageBytes;
constexpr std::uint64_t kWordBytes = 8;
constexpr std::chrono::microseconds kPollPause{20};
constexpr Access kAllRemote = Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic;

enum class Try : std::uint8_t { kRead, kWrite, kFetchAdd };

std::string_view to_string(Try what) noexcept {
  switch (what) {
    case Try::kRead: return "a read";
    case Try::kWrite: return "a write";
    case Try::kFetchAdd: return "a fetch-and-add";
  }
  return "an access";
}

/// A place at which an access of 8 bytes is tried, as the offset from the window's beginning.
struct Place {
  std::int64_t offset_bytes;
  std::string_view name;
};

constexpr std::int64_t kWindowEnd = static_cast<std::int64_t>(kPageBytes);
constexpr std::array kOutside{
    Place{-8, "just before the window"},       Place{-1, "across the window's beginning"},
    Place{kWindowEnd - 7, "across its end"},   Place{kWindowEnd, "just behind the window"},
    Place{kWindowEnd + 1, "a byte behind it"}, Place{2 * kWindowEnd, "a page behind it"},
};
constexpr std::array kInside{Place{0, "at its beginning"}, Place{kWindowEnd - 9, "before its end"},
                             Place{kWindowEnd - 8, "at its end"}};
constexpr const Place& kAcrossTheEnd = kOutside[2];
constexpr const Place& kBehind = kOutside[3];

/// The port and addresses of the probe's queue pairs.
struct ProbePort {
  std::uint8_t number = 1;
  std::uint16_t pkey_index = 0;
  std::optional<std::uint32_t> gid_index{};  ///< empty: verbs chooses it
};

/// The addresses of this network namespace's interfaces, as GIDs of RoCE.
std::vector<verbs::Gid> own_addresses() {
  std::vector<verbs::Gid> own;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return own;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all{first, &::freeifaddrs};
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    verbs::Gid gid{};
    if (each->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(gid.bytes.data(), &reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr,
                  gid.bytes.size());
    } else if (each->ifa_addr->sa_family == AF_INET) {
      gid.bytes[10] = gid.bytes[11] = 0xff;
      std::memcpy(&gid.bytes[12], &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr,
                  sizeof(in_addr));
    } else {
      continue;
    }
    own.push_back(gid);
  }
  return own;
}

/// The first active port. Errors: kNotFound, with the state of the ports; those of reading the
/// port's tables.
Result<ProbePort> find_port(const verbs::Device& device) {
  constexpr std::uint16_t kFullMember = 0x8000;
  std::string states;
  for (std::uint8_t number = 1; number <= device.attributes().port_count; ++number) {
    const auto port = device.query_port(number);
    if (!port) return port.error();
    if (!port->active()) {
      states += " port " + std::to_string(number) + " is " + std::string{to_string(port->state)};
      continue;
    }
    ProbePort found{.number = number};
    // Two members of a partition that are both limited do not reach each other.
    for (std::uint16_t index = 0; index < port->pkey_table_length; ++index) {
      const auto key = device.query_pkey(number, index);
      if (!key || (*key & kFullMember) == 0 || *key == kFullMember) continue;
      found.pkey_index = index;
      break;
    }
    if (const auto gids = device.query_gids())
      found.gid_index = choose_own_gid(*gids, number, own_addresses());
    return found;
  }
  return Error{Code::kNotFound, "no active port"}.with_subject(std::string{device.name()} + states);
}

bool is_aligned(const Place& place) noexcept { return place.offset_bytes % 8 == 0; }

/// A client's queue pair and the server's queue pair that it is connected to.
struct Link {
  verbs::QueuePair<verbs::Rc> server;
  verbs::QueuePair<verbs::Rc> client;
};

class WindowProbe {
 public:
  static Result<WindowProbe> create(const verbs::Device& device, verbs::Deadline deadline);

  /// Checks that permitted accesses succeed: otherwise a refused access would prove nothing. An
  /// error says what went wrong.
  Status works();
  WindowCheck range(WindowCheck check);
  WindowCheck rights(WindowCheck check);
  WindowCheck binding(WindowCheck check);
  WindowCheck invalidation(WindowCheck check);

 private:
  WindowProbe(const ProbePort& port, verbs::CompletionQueue queue, verbs::ProtectionDomain domain,
              verbs::MemoryRegion leased, verbs::MemoryRegion own, verbs::Deadline deadline)
      : port_{port},
        queue_{std::move(queue)},
        domain_{std::move(domain)},
        leased_{std::move(leased)},
        own_{std::move(own)},
        deadline_{deadline} {}

  /// Makes a new link: a refused access breaks both queue pairs, so every attempt needs a new link.
  Result<Link> connect();
  Result<verbs::MemoryWindow> bind(Link& link, Access rights);
  /// How the request `id` completed. Completions of earlier links are skipped.
  Result<CompletionStatus> outcome_of(std::uint64_t id);
  /// Whether the device executed the access. Errors: it neither executed nor refused it.
  Result<bool> attempt(Link& link, Try what, std::uint64_t address, std::uint32_t rkey);
  /// True: the access was refused. False: it was executed, or its outcome is unknown; `check` is
  /// filled in as broken or untested.
  bool refused(WindowCheck& check, Link& link, Try what, std::uint64_t address, std::uint32_t rkey,
               std::string_view where);
  /// Whether no byte of the probe's memory outside the window was written.
  [[nodiscard]] bool unharmed() const noexcept;
  [[nodiscard]] std::uint64_t at(const Place& place) const noexcept {
    return leased_.address() + kPageBytes + static_cast<std::uint64_t>(place.offset_bytes);
  }

  [[nodiscard]] bool has_atomics() const noexcept {
    return domain_.device().attributes().atomics != verbs::AtomicSupport::kNone;
  }
  /// Whether the device supports this access at all.
  [[nodiscard]] bool may_try(Try what) const noexcept {
    return what != Try::kFetchAdd || has_atomics();
  }
  [[nodiscard]] Access possible(Access access) const noexcept {
    return has_atomics()
               ? access
               : access & (Access::kRemoteRead | Access::kRemoteWrite | Access::kLocalWrite);
  }

  ProbePort port_;
  verbs::CompletionQueue queue_;
  verbs::ProtectionDomain domain_;  ///< the server's domain, shared by all its clients
  verbs::MemoryRegion leased_;
  verbs::MemoryRegion own_;  ///< the clients' memory, in another domain
  verbs::Deadline deadline_;
  std::uint64_t next_id_ = 1;
};

std::string why(const Error& error) { return error.message(); }

WindowCheck untested(WindowCheck check, const Error& error) {
  check.verdict = Verdict::kUntested;
  check.reason = why(error);
  return check;
}

Result<WindowProbe> WindowProbe::create(const verbs::Device& device, verbs::Deadline deadline) {
  const auto port = find_port(device);
  if (!port) return port.error();
  constexpr std::uint32_t kCompletions = 128;
  auto queue = device.create_completion_queue({.depth = kCompletions});
  if (!queue) return queue.error();
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  auto clients = device.allocate_domain();
  if (!clients) return clients.error();
  auto leased = verbs::MemoryRegion::allocate(*domain, kLeasedBytes,
                                              Access::kLocalWrite | Access::kWindowBind);
  if (!leased) return leased.error();
  auto own = verbs::MemoryRegion::allocate(*clients, kPageBytes, Access::kLocalWrite);
  if (!own) return own.error();
  return WindowProbe{*port,           std::move(*queue), std::move(*domain), std::move(*leased),
                     std::move(*own), deadline};
}

Result<Link> WindowProbe::connect() {
  const auto builder_in = [&](const verbs::ProtectionDomain& domain, Access access) {
    verbs::QueuePairBuilder<verbs::Rc> builder{domain, queue_, queue_};
    builder.send_depth(2).receive_depth(2).access(access).timeout(
        domain.device().is_software() ? kAckTimeoutSoftware : kAckTimeoutHardware);
    builder.port(port_.number).pkey_index(port_.pkey_index);
    if (port_.gid_index) builder.gid_index(*port_.gid_index);
    return builder;
  };
  auto server = builder_in(domain_, possible(kAllRemote | Access::kLocalWrite)).build();
  if (!server) return server.error();
  auto client = builder_in(own_.domain(), Access::kNone).build();
  if (!client) return client.error();
  const verbs::Endpoint to_server = server->endpoint();
  const verbs::Endpoint to_client = client->endpoint();
  auto listens = std::move(*server).connect(to_client);
  if (!listens) return listens.error();
  auto asks = std::move(*client).connect(to_server);
  if (!asks) return asks.error();
  return Link{std::move(*listens), std::move(*asks)};
}

Result<verbs::MemoryWindow> WindowProbe::bind(Link& link, Access rights) {
  auto window = link.server.allocate_window();
  if (!window) return window.error();
  const std::uint64_t id = next_id_++;
  auto batch = link.server.start();
  batch.bind_window(id, *window, leased_, kPageBytes, kPageBytes, possible(rights));
  if (auto status = batch.post(); !status) return status.error();
  const auto bound = outcome_of(id);
  if (!bound) return bound.error();
  if (*bound != CompletionStatus::kSuccess)
    return Error{Code::kProvider, "binding a window"}.with_completion(*bound, 0);
  return std::move(*window);
}

Result<CompletionStatus> WindowProbe::outcome_of(std::uint64_t id) {
  while (true) {
    std::array<verbs::Completion, 8> storage;
    const auto found = queue_.poll(storage);
    if (!found) return found.error();
    for (const verbs::Completion& completion : *found)
      if (completion.id() == id) return completion.status();
    if (!found->empty()) continue;
    if (std::chrono::steady_clock::now() >= deadline_)
      return Error{Code::kTimedOut, "probing windows"};
    std::this_thread::sleep_for(kPollPause);
  }
}

Result<bool> WindowProbe::attempt(Link& link, Try what, std::uint64_t address, std::uint32_t rkey) {
  const std::uint64_t id = next_id_++;
  const verbs::LocalSlice local = own_.slice(0, kWordBytes);
  const verbs::RemoteSlice remote{address, kWordBytes, rkey};
  auto batch = link.client.start();
  if (what != Try::kWrite) {
    if (what == Try::kRead)
      batch.read(id, local, remote);
    else
      batch.fetch_add(id, local, remote, 1);
  } else {
    std::memset(own_.bytes().data(), 0xa5, kWordBytes);
    batch.write(id, local, remote);
  }
  if (auto status = batch.post(); !status) return status.error();
  const auto ended = outcome_of(id);
  if (!ended) return ended.error();
  switch (*ended) {
    case CompletionStatus::kSuccess: return true;
    case CompletionStatus::kRemoteAccessError:
    case CompletionStatus::kRemoteInvalidRequest:
    case CompletionStatus::kRemoteOperationError: return false;
    default: return Error{Code::kProvider, "probing windows"}.with_completion(*ended, 0);
  }
}

bool WindowProbe::unharmed() const noexcept {
  const std::span<const std::byte> all = leased_.bytes();
  const auto zero = [](std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  return zero(all.first(kPageBytes)) && zero(all.subspan(2 * kPageBytes));
}

bool WindowProbe::refused(WindowCheck& check, Link& link, Try what, std::uint64_t address,
                          std::uint32_t rkey, std::string_view where) {
  const auto carried_out = attempt(link, what, address, rkey);
  if (!carried_out) {
    check = untested(check, carried_out.error());
    return false;
  }
  if (!*carried_out && unharmed()) return true;
  check.verdict = Verdict::kBroken;
  check.reason = std::string{to_string(what)} + " of 8 bytes " + std::string{where} +
                 (*carried_out ? " was carried out" : " was refused, yet memory has changed");
  return false;
}

Status WindowProbe::works() {
  auto link = connect();
  if (!link) return link.error();
  const auto window = bind(*link, kAllRemote);
  if (!window) return window.error();
  for (const Try what : {Try::kRead, Try::kWrite, Try::kFetchAdd})
    for (const Place& place : kInside) {
      if (!may_try(what) || (what == Try::kFetchAdd && !is_aligned(place))) continue;
      const auto carried_out = attempt(*link, what, at(place), window->rkey());
      if (!carried_out) return carried_out.error();
      if (!*carried_out)
        return Error{Code::kAccessRefused, "access within a window"}.with_subject(place.name);
    }
  return {};
}

/// A refused request costs a connection, and drivers print it. So writes, which leave a trace, are
/// tried at each place, reads and atomics only at the places that are most often wrong.
WindowCheck WindowProbe::range(WindowCheck check) {
  struct Attempt {
    Try what;
    const Place& place;
  };
  std::vector<Attempt> attempts;
  attempts.reserve(std::size(kOutside) + 2);
  for (const Place& place : kOutside) attempts.push_back({Try::kWrite, place});
  attempts.push_back({Try::kRead, kAcrossTheEnd});
  if (may_try(Try::kFetchAdd)) attempts.push_back({Try::kFetchAdd, kBehind});
  for (const auto& [what, place] : attempts) {
    auto link = connect();
    if (!link) return untested(check, link.error());
    const auto window = bind(*link, kAllRemote);
    if (!window) return untested(check, window.error());
    if (!refused(check, *link, what, at(place), window->rkey(), place.name)) return check;
  }
  check.verdict = Verdict::kKept;
  return check;
}

WindowCheck WindowProbe::rights(WindowCheck check) {
  struct Forbidden {
    Access bound;
    Try what;
    std::string_view where;
  };
  for (const Forbidden& each :
       {Forbidden{Access::kRemoteRead, Try::kWrite, "through a window bound for reading"},
        Forbidden{Access::kRemoteRead, Try::kFetchAdd, "through a window bound for reading"},
        Forbidden{Access::kRemoteWrite, Try::kRead, "through a window bound for writing"}}) {
    if (!may_try(each.what)) continue;
    auto link = connect();
    if (!link) return untested(check, link.error());
    const auto window = bind(*link, each.bound);
    if (!window) return untested(check, window.error());
    if (!refused(check, *link, each.what, at({0, {}}), window->rkey(), each.where)) return check;
  }
  auto link = connect();
  if (!link) return untested(check, link.error());
  if (!refused(check, *link, Try::kWrite, at({0, {}}), leased_.rkey(),
               "by the key of the registration under the window"))
    return check;
  check.verdict = Verdict::kKept;
  return check;
}

WindowCheck WindowProbe::binding(WindowCheck check) {
  // To the device all queue pairs of the domain are equal, whichever client they belong to.
  auto bound_on = connect();
  if (!bound_on) return untested(check, bound_on.error());
  const auto window = bind(*bound_on, kAllRemote);
  if (!window) return untested(check, window.error());
  for (const Try what : {Try::kWrite, Try::kRead}) {
    auto other = connect();
    if (!other) return untested(check, other.error());
    if (!refused(check, *other, what, at({0, {}}), window->rkey(), "on another queue pair"))
      return check;
  }
  check.verdict = Verdict::kKept;
  return check;
}

WindowCheck WindowProbe::invalidation(WindowCheck check) {
  auto owner = connect();
  if (!owner) return untested(check, owner.error());
  const auto window = bind(*owner, kAllRemote);
  if (!window) return untested(check, window.error());
  for (const auto& [key, whose] : {std::pair{window->rkey(), "of a window"},
                                   std::pair{leased_.rkey(), "of the registration under it"}}) {
    auto other = connect();
    if (!other) return untested(check, other.error());
    if (auto status = other->server.post_receive(next_id_++, {}); !status)
      return untested(check, status.error());
    const std::uint64_t id = next_id_++;
    auto batch = other->client.start();
    batch.send_with_invalidate(id, {}, key);
    if (auto status = batch.post(); !status) return untested(check, status.error());
    // Whether the request was refused does not matter, only whether the window still exists.
    if (const auto ended = outcome_of(id); !ended) return untested(check, ended.error());
    const auto still_there = attempt(*owner, Try::kRead, at({0, {}}), window->rkey());
    if (!still_there) return untested(check, still_there.error());
    if (*still_there) continue;
    check.verdict = Verdict::kBroken;
    check.reason = "another client's message took the key " + std::string{whose} + " away";
    return check;
  }
  check.verdict = Verdict::kKept;
  return check;
}

}  // namespace

std::optional<std::uint32_t> choose_own_gid(std::span<const verbs::GidEntry> table,
                                            std::uint8_t port, const std::vector<verbs::Gid>& own) {
  std::vector<verbs::GidEntry> usable;
  for (const verbs::GidEntry& each : table)
    if (std::find(own.begin(), own.end(), each.gid) != own.end()) usable.push_back(each);
  const auto taken = verbs::choose_gid(usable, {.port = port}).taken();
  if (!taken) return std::nullopt;
  return taken->index;
}

WindowFindings probe_windows(const verbs::Device& device, verbs::Deadline deadline) {
  const verbs::DeviceAttributes& attributes = device.attributes();
  if (!attributes.memory_window_type_2) {
    WindowFindings none = WindowFindings::untested("the device has no type-2 windows");
    none.no_windows = true;
    return none;
  }
  auto probe = WindowProbe::create(device, deadline);
  if (!probe) return WindowFindings::untested(why(probe.error()));
  if (const Status works = probe->works(); !works)
    return WindowFindings::untested(why(works.error()));
  WindowFindings found;
  found.binding = probe->binding(found.binding);
  found.rights = probe->rights(found.rights);
  found.invalidation = probe->invalidation(found.invalidation);
  found.range = probe->range(found.range);
  return found;
}

}  // namespace remora::transport::rdma
