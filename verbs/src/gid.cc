#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>

#include <remora/verbs/gid.h>

namespace remora::verbs {
namespace {

// Routable addresses: 30 for RoCE v2, 20 for InfiniBand, 10 for RoCE v1; +2 IPv4-mapped, +1 IPv6.
int base_rating(GidType type) noexcept {
  switch (type) {
    case GidType::kRoceV2: return 30;
    case GidType::kInfiniBand: return 20;
    case GidType::kRoceV1: return 10;
    case GidType::kUnknown: break;
  }
  return 0;
}

GidCandidate rate(const GidEntry& entry, const GidPolicy& policy) {
  const auto unusable = [&](GidVerdict verdict) { return GidCandidate{entry, verdict, 0}; };
  if (entry.port != policy.port) return unusable(GidVerdict::kOtherPort);
  if (entry.gid.is_zero()) return unusable(GidVerdict::kZero);
  const int base = base_rating(entry.type);
  if (base == 0) return unusable(GidVerdict::kUnknownType);
  // The default InfiniBand GID has the link-local prefix; a subnet routes by it.
  if (entry.type == GidType::kInfiniBand)
    return {entry, GidVerdict::kLeftForBetter, entry.gid.is_link_local() ? base : base + 1};
  if (entry.gid.is_loopback()) return unusable(GidVerdict::kLoopback);
  if (entry.gid.is_link_local()) {
    if (!policy.allow_link_local) return unusable(GidVerdict::kLinkLocal);
    return {entry, GidVerdict::kLeftForBetter, base};
  }
  return {entry, GidVerdict::kLeftForBetter, base + (entry.gid.is_ipv4_mapped() ? 2 : 1)};
}

}  // namespace

Gid Gid::from(const ibv_gid& raw) noexcept {
  Gid gid;
  std::memcpy(gid.bytes.data(), raw.raw, gid.bytes.size());
  return gid;
}

ibv_gid Gid::raw() const noexcept {
  ibv_gid raw{};
  std::memcpy(raw.raw, bytes.data(), bytes.size());
  return raw;
}

bool Gid::is_zero() const noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool Gid::is_ipv4_mapped() const noexcept {
  return std::all_of(bytes.begin(), bytes.begin() + 10,
                     [](std::uint8_t byte) { return byte == 0; }) &&
         bytes[10] == 0xff && bytes[11] == 0xff;
}

bool Gid::is_link_local() const noexcept {
  if (is_ipv4_mapped()) return bytes[12] == 169 && bytes[13] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool Gid::is_loopback() const noexcept {
  if (is_ipv4_mapped()) return bytes[12] == 127;
  return std::all_of(bytes.begin(), bytes.begin() + 15,
                     [](std::uint8_t byte) { return byte == 0; }) &&
         bytes[15] == 1;
}

std::string Gid::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
  return text.data();
}

std::string_view to_string(GidType type) noexcept {
  switch (type) {
    case GidType::kInfiniBand: return "InfiniBand";
    case GidType::kRoceV1: return "RoCE v1";
    case GidType::kRoceV2: return "RoCE v2";
    case GidType::kUnknown: break;
  }
  return "unknown type";
}

std::string_view to_string(GidVerdict verdict) noexcept {
  switch (verdict) {
    case GidVerdict::kTaken: return "taken";
    case GidVerdict::kLeftForBetter: return "left: another one is better";
    case GidVerdict::kLeftForEarlier: return "left: an earlier one is as good";
    case GidVerdict::kZero: return "left: empty";
    case GidVerdict::kLinkLocal: return "left: link-local, reaches one segment only";
    case GidVerdict::kLoopback: return "left: loopback, reaches this host only";
    case GidVerdict::kOtherPort: return "left: on another port";
    case GidVerdict::kUnknownType: return "left: of a type we do not know";
  }
  return "left";
}

std::ostream& operator<<(std::ostream& out, const Gid& gid) { return out << gid.to_string(); }

std::string GidEntry::interface_name() const {
  std::array<char, IF_NAMESIZE> name{};
  if (interface_index == 0 || ::if_indextoname(interface_index, name.data()) == nullptr) return {};
  return name.data();
}

std::ostream& operator<<(std::ostream& out, const GidEntry& entry) {
  return out << "port " << +entry.port << " gid " << entry.index << ' ' << to_string(entry.type)
             << ' ' << entry.gid;
}

Result<GidEntry> GidChoice::taken() const {
  if (!taken_) return Error{Code::kNotFound, "choose_gid"}.with_subject("no routable GID");
  return candidates_[*taken_].entry;
}

std::string GidChoice::to_string() const {
  std::string text;
  for (const GidCandidate& candidate : candidates_) {
    text.append("port ").append(std::to_string(candidate.entry.port));
    text.append(" gid ").append(std::to_string(candidate.entry.index));
    text.append(" ").append(verbs::to_string(candidate.entry.type));
    text.append(" ").append(candidate.entry.gid.to_string());
    text.append(": ").append(verbs::to_string(candidate.verdict)).append("\n");
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const GidChoice& choice) {
  return out << choice.to_string();
}

GidChoice choose_gid(std::span<const GidEntry> table, const GidPolicy& policy) {
  std::vector<GidCandidate> candidates;
  candidates.reserve(table.size());
  std::optional<std::size_t> best;
  for (const GidEntry& entry : table) {
    candidates.push_back(rate(entry, policy));
    const int rating = candidates.back().rating;
    if (rating > 0 && (!best || rating > candidates[*best].rating)) best = candidates.size() - 1;
  }
  if (best) {
    for (GidCandidate& candidate : candidates)
      if (candidate.rating == candidates[*best].rating)
        candidate.verdict = GidVerdict::kLeftForEarlier;
    candidates[*best].verdict = GidVerdict::kTaken;
  }
  return GidChoice{std::move(candidates), best};
}

}  // namespace remora::verbs
