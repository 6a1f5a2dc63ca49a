#include "client_counts.h"

#include <array>
#include <numeric>
#include <string_view>

namespace remora::fault {
namespace {

constexpr const char* kOperations = "remora_client_operations_total";
constexpr const char* kBegun = "remora_client_sessions_total";
constexpr const char* kInterrupted = "remora_client_sessions_interrupted_total";
constexpr const char* kResumed = "remora_client_sessions_resumed_total";
constexpr const char* kEnded = "remora_client_sessions_ended_total";

constexpr std::array<const char*, 8> kStatuses{
    "ok",     "timed_out", "cancelled", "indeterminate", "connection_lost", "access_refused",
    "failed", "misuse"};
/// A lane that broke, by itself or for an operation.
constexpr std::array<const char*, 3> kOfLanes{"lane_broken", "deadline", "refused"};
constexpr std::array<const char*, 2> kOfPeers{"peer_gone", "protocol"};

std::uint64_t sum(const metrics::Registry& registry, const char* name,
                  const metrics::Labels& labels = {}) {
  const auto found = registry.sum(name, labels);
  return found ? static_cast<std::uint64_t>(*found) : 0;
}

template <std::size_t kCount>
std::uint64_t sum_of(const metrics::Registry& registry, const char* name,
                     const std::array<const char*, kCount>& reasons) {
  return std::accumulate(reasons.begin(), reasons.end(), std::uint64_t{0},
                         [&](std::uint64_t so_far, const char* reason) {
                           return so_far + sum(registry, name, {{"reason", reason}});
                         });
}

std::uint64_t total(const std::map<Reason, std::uint64_t>& told) {
  return std::accumulate(told.begin(), told.end(), std::uint64_t{0},
                         [](std::uint64_t so_far, const auto& one) { return so_far + one.second; });
}

std::uint64_t count_of(const std::map<Reason, std::uint64_t>& told, Reason reason) {
  const auto found = told.find(reason);
  return found == told.end() ? 0 : found->second;
}

std::uint64_t not_closed(const metrics::Registry& registry) {
  return sum_of(registry, kEnded, kOfLanes) + sum_of(registry, kEnded, kOfPeers);
}

}  // namespace

const char* status_of(Code code) noexcept {
  switch (code) {
    case Code::kTimedOut: return "timed_out";
    case Code::kCancelled: return "cancelled";
    case Code::kIndeterminate: return "indeterminate";
    case Code::kConnectionLost: return "connection_lost";
    case Code::kAccessRefused: return "access_refused";
    default: return "failed";
  }
}

EndCounts counted_ends(const metrics::Registry& registry) {
  EndCounts counted;
  for (const char* const status : kStatuses)
    counted[status] = sum(registry, kOperations, {{"status", status}});
  return counted;
}

std::vector<std::string> compare_ends(const EndCounts& told, const EndCounts& counted) {
  const auto number = [](const EndCounts& of, const char* status) {
    const auto found = of.find(status);
    return found == of.end() ? 0 : found->second;
  };
  std::vector<std::string> wrong;
  std::uint64_t before_the_lane = number(counted, "misuse");
  for (const char* const status : kStatuses) {
    if (std::string_view{status} == "misuse") continue;
    const std::uint64_t seen = number(told, status);
    const std::uint64_t in_metrics = number(counted, status);
    if (seen == in_metrics) continue;
    const bool failure = std::string_view{status} != "ok";
    if (failure && seen > in_metrics && seen - in_metrics <= before_the_lane) {
      before_the_lane -= seen - in_metrics;
      continue;
    }
    wrong.push_back("I9: " + std::to_string(seen) + " operations ended as " + status +
                    ", the metrics say " + std::to_string(in_metrics));
  }
  if (before_the_lane != 0)
    wrong.push_back("I9: the metrics have " + std::to_string(before_the_lane) +
                    " operations refused as misuse that no call returned");
  return wrong;
}

std::map<std::string, std::uint64_t> SessionEvents::by_text() const {
  std::map<std::string, std::uint64_t> texts;
  for (const auto& [reason, count] : interrupted)
    texts["interrupted: " + std::string{to_string(reason)}] = count;
  for (const auto& [reason, count] : ended)
    texts["ended: " + std::string{to_string(reason)}] = count;
  return texts;
}

bool all_told(const SessionEvents& told, const metrics::Registry& registry) {
  return total(told.interrupted) == sum(registry, kInterrupted) &&
         told.resumed == sum(registry, kResumed) && total(told.ended) == not_closed(registry);
}

bool all_ended(const metrics::Registry& registry) {
  return sum(registry, kBegun) <= sum(registry, kEnded);
}

std::vector<std::string> compare_session_events(const SessionEvents& told,
                                                const metrics::Registry& registry) {
  std::vector<std::string> wrong;
  const auto same = [&](const std::string& what, std::uint64_t heard, std::uint64_t counted) {
    if (heard != counted)
      wrong.push_back("I9: " + what + ": " + std::to_string(heard) +
                      " were told, the metrics say " + std::to_string(counted));
  };
  const auto at_least = [&](const std::string& what, std::uint64_t heard, std::uint64_t counted) {
    if (heard > counted)
      wrong.push_back("I9: " + what + ": " + std::to_string(heard) +
                      " were told, the metrics say only " + std::to_string(counted));
  };
  same("sessions interrupted", total(told.interrupted), sum(registry, kInterrupted));
  same("sessions resumed", told.resumed, sum(registry, kResumed));
  same("sessions ended", total(told.ended), not_closed(registry));
  if (const auto begun = sum(registry, kBegun), ended = sum(registry, kEnded); begun != ended)
    wrong.push_back("I9: of " + std::to_string(begun) + " sessions that have begun " +
                    std::to_string(ended) + " have ended, by the metrics");
  // Of other reasons either may be so: what a server says of its own accord goes before what the
  // client sees of it.
  at_least("sessions interrupted by a broken lane", count_of(told.interrupted, Reason::kLaneBroken),
           sum_of(registry, kInterrupted, kOfLanes));
  at_least("sessions interrupted by a peer that went",
           count_of(told.interrupted, Reason::kPeerGone), sum_of(registry, kInterrupted, kOfPeers));
  // Where it was not reached again, why it was interrupted is what is told of its end.
  at_least("sessions ended by their server, which has new memory or has given them up",
           count_of(told.ended, Reason::kNewMemory) + count_of(told.ended, Reason::kLapsed) +
               count_of(told.ended, Reason::kPeerGone),
           sum_of(registry, kEnded, kOfPeers));
  return wrong;
}

}  // namespace remora::fault
