#include "client/engine/passed_over.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace remora::detail {

namespace {

constexpr std::string_view kFindOverShm = "find the server over shm";
constexpr std::string_view kIsNot = " is not ";
constexpr std::string_view kWhichHas = ", which has ";
constexpr std::string_view kOnPort = " on port ";

/// Whether there is a device that lacks a setting of the application.
bool is_setting(const Error& error) noexcept {
  return error.operation() == "rdma setting that the port does not have";
}

/// Whether the transport cannot be used on this host at all.
bool is_missing(const Error& error) noexcept {
  return error.code() == Code::kUnsupported ||
         (error.code() == Code::kNotFound && error.operation() != "getaddrinfo" &&
          !is_setting(error));
}

/// The address at which a server was found over shm instead of the URI's address; empty: there was
/// none. From the subject of transport::check_identity().
std::string_view listens_elsewhere(const Error& error) noexcept {
  if (error.operation() != kFindOverShm) return {};
  const std::string_view subject = error.subject();
  const std::size_t begin = subject.find(kIsNot);
  const std::size_t end = subject.find(kWhichHas);
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  return subject.substr(begin + kIsNot.size(), end - begin - kIsNot.size());
}

/// A short form of `error`, for the reason why another transport was used.
std::string in_brief(TransportKind kind, const Error& error) {
  if (error.operation() == kFindOverShm && !error.subject().empty())
    return std::string{error.subject().substr(0, error.subject().find(kWhichHas))};
  if (is_setting(error))
    return "no " + std::string{error.subject().substr(0, error.subject().find(kOnPort))};
  if (kind == TransportKind::kRdma && error.code() == Code::kNotFound && is_missing(error))
    return "no device";
  if (kind == TransportKind::kRdma && error.code() == Code::kUnsupported) return "no hardware";
  if (kind == TransportKind::kShm && error.code() == Code::kUnsupported)
    return "region was not created for it";
  return std::string{to_string(error.code())};
}

}  // namespace

void PassedOver::skip(TransportKind kind, std::string why) {
  skipped_.push_back({kind, std::move(why)});
}

void PassedOver::add_unreached(TransportKind kind, const Error& error) {
  tried_.push_back({kind, error, false});
}

void PassedOver::add_answered(TransportKind kind, const Error& error) {
  tried_.push_back({kind, error, true});
}

int PassedOver::usefulness(const Transport& transport) noexcept {
  const Code code = transport.error.code();
  // An answer over another transport is more useful than "this transport does not fit the region".
  if (transport.answered) return code == Code::kUnsupported ? 8 : 9;
  if (is_missing(transport.error)) return 0;
  switch (transport.kind) {
    case TransportKind::kShm:
      if (code == Code::kPermissionDenied) return 7;  // a server of another user runs there
      return code == Code::kTimedOut ? 4 : 1;
    case TransportKind::kRdma: return is_setting(transport.error) ? 7 : 5;
    case TransportKind::kTcp:
    case TransportKind::kAuto: break;
  }
  return 6;
}

Error PassedOver::cause() const {
  const auto found = std::max_element(
      tried_.begin(), tried_.end(),
      [](const Transport& a, const Transport& b) { return usefulness(a) < usefulness(b); });
  if (found == tried_.end()) return Error{Code::kUnsupported, "open"};
  if (found->answered || found->kind == TransportKind::kShm) return found->error;
  for (const Transport& each : tried_)
    if (const std::string_view address = listens_elsewhere(each.error); !address.empty())
      return found->error.with_subject(std::string{found->error.subject()} +
                                       "; a server of this host listens at " +
                                       std::string{address});
  return found->error;
}

std::string PassedOver::reason(TransportKind chosen, std::string_view why) const {
  std::string line{to_string(chosen)};
  line.append(": ").append(why);
  std::string_view between = " (";
  const auto add = [&](TransportKind kind, std::string_view words) {
    line.append(std::exchange(between, "; ")).append(to_string(kind)).append(": ").append(words);
  };
  for (const Skipped& each : skipped_) add(each.kind, each.why);
  for (const Transport& each : tried_) add(each.kind, in_brief(each.kind, each.error));
  if (skipped_.empty() && tried_.empty()) return line;
  constexpr std::string_view kCut = "...";
  if (line.size() + 1 > kMaxReasonBytes)
    line.replace(kMaxReasonBytes - 1 - kCut.size(), std::string::npos, kCut);
  return line.append(")");
}

std::string PassedOver::text() const {
  std::string text;
  const auto add = [&](TransportKind kind, std::string_view words) {
    if (!text.empty()) text.append("; ");
    text.append(to_string(kind)).append(": ").append(words);
  };
  for (const Skipped& each : skipped_) add(each.kind, each.why);
  for (const Transport& each : tried_) add(each.kind, each.error.message());
  return text;
}

}  // namespace remora::detail
