#include "etcd_gateway.h"

#include <algorithm>
#include <utility>

namespace remora::volume {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kIdleMax = 8;
constexpr milliseconds kShareMin{50};

// Numbers of gRPC, which the gateway passes on.
constexpr int kInvalidArgument = 3;
constexpr int kDeadlineExceeded = 4;
constexpr int kNotFound = 5;
constexpr int kPermissionDenied = 7;
constexpr int kResourceExhausted = 8;
constexpr int kFailedPrecondition = 9;
constexpr int kOutOfRange = 11;
constexpr int kUnauthenticated = 16;

constexpr int kHttpOk = 200;
constexpr int kHttpNotFound = 404;
constexpr int kHttpServerFault = 500;

constexpr Operation kCertificate{"certificate of etcd"};

/// What etcd answered, and where.
Error said(Code code, Operation operation, std::string_view endpoint, std::string_view text) {
  std::string subject{endpoint};
  if (!text.empty()) subject.append(": ").append(text);
  return Error{code, operation}.with_subject(subject);
}

struct Refusal {
  int code = 0;
  std::string text{};
};

Refusal refusal_of(const Json& json) {
  Refusal refusal;
  // A call of a stream, such as the renewal of a lease, has them in an object of its own.
  const auto of_stream = json.find("error");
  const Json& told = of_stream != json.end() && of_stream->is_object() ? *of_stream : json;
  for (const char* const member : {"code", "grpc_code"})
    if (const auto code = told.find(member); code != told.end() && code->is_number_integer())
      refusal.code = code->get<int>();
  for (const char* const member : {"error", "message"})
    if (const auto text = told.find(member); text != told.end() && text->is_string())
      refusal.text = text->get<std::string>();
  return refusal;
}

bool is_of_login(const Refusal& refusal) {
  return refusal.text.find("user name is empty") != std::string::npos ||
         refusal.text.find("authentication failed") != std::string::npos ||
         refusal.text.find("authentication is not enabled") != std::string::npos;
}

bool is_of_token(const Refusal& refusal) {
  return refusal.code == kUnauthenticated ||
         refusal.text.find("invalid auth token") != std::string::npos ||
         refusal.text.find("auth store is old") != std::string::npos;
}

/// The error of a request that etcd has certainly not carried out; empty: it may have.
std::optional<Error> certain_error(const Refusal& refusal, std::string_view endpoint) {
  if (is_of_login(refusal) || refusal.code == kPermissionDenied || is_of_token(refusal))
    return said(Code::kPermissionDenied, "user of etcd", endpoint, refusal.text);
  switch (refusal.code) {
    case kInvalidArgument:
      return said(refusal.text.find("too many operations") != std::string::npos
                      ? Code::kLimitExceeded
                      : Code::kProtocol,
                  "etcd", endpoint, refusal.text);
    case kNotFound: return said(Code::kNotFound, "lease of a cluster", endpoint, refusal.text);
    case kResourceExhausted: return said(Code::kLimitExceeded, "etcd", endpoint, refusal.text);
    case kFailedPrecondition: return said(Code::kBusy, "etcd", endpoint, refusal.text);
    case kOutOfRange: return said(Code::kOutOfRange, "etcd", endpoint, refusal.text);
    default: return std::nullopt;
  }
}

Error no_answer(const HttpAnswer& answer, std::string_view endpoint) {
  if (answer.refused) return said(Code::kPermissionDenied, kCertificate, endpoint, answer.fault);
  return said(answer.expired ? Code::kTimedOut : Code::kUnreachable, "etcd", endpoint,
              answer.fault);
}

/// Whether another endpoint may answer: one may be stopped, be behind a proxy that ends the
/// connection, or have another certificate.
bool is_of_endpoint(const Error& error) {
  return error.code() == Code::kUnreachable || error.code() == Code::kTimedOut ||
         error.operation() == kCertificate.text();
}

}  // namespace

EtcdGateway::EtcdGateway(std::vector<std::string> endpoints, StoreOptions options)
    : endpoints_{std::move(endpoints)}, options_{std::move(options)} {}

std::unique_ptr<HttpHandle> EtcdGateway::take_handle() {
  {
    const remora::detail::MutexLock lock{mutex_};
    if (!idle_.empty()) {
      auto handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return HttpHandle::create(options_);
}

void EtcdGateway::give_back(std::unique_ptr<HttpHandle> handle) {
  const remora::detail::MutexLock lock{mutex_};
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(handle));
}

Result<std::string> EtcdGateway::token(const std::string& endpoint, milliseconds share,
                                       bool renew) {
  if (options_.user.empty()) return std::string{};
  {
    const remora::detail::MutexLock lock{mutex_};
    if (!renew && !token_.empty()) return token_;
  }
  auto handle = take_handle();
  if (handle == nullptr) return Error{Code::kOutOfMemory, "etcd"};
  const Json request{{"name", options_.user}, {"password", options_.password}};
  const HttpAnswer answer =
      handle->post({endpoint + "/v3/auth/authenticate", request.dump(), "", share, false});
  give_back(std::move(handle));
  if (answer.status == 0) return no_answer(answer, endpoint);
  const Json json = Json::parse(answer.body, nullptr, false);
  if (answer.status != kHttpOk && json.is_object()) {
    const Refusal refusal = refusal_of(json);
    if (const auto error = certain_error(refusal, endpoint)) return *error;
    return said(Code::kUnreachable, "etcd", endpoint, refusal.text);
  }
  const auto found = json.is_object() ? json.find("token") : json.end();
  if (answer.status != kHttpOk || found == json.end() || !found->is_string())
    return said(answer.status >= kHttpServerFault ? Code::kUnreachable : Code::kProtocol, "etcd",
                endpoint, "no token in the answer");
  const remora::detail::MutexLock lock{mutex_};
  token_ = found->get<std::string>();
  return token_;
}

/// `renew`: in, whether the token is to be renewed first; out, whether etcd has refused it.
Result<GatewayAnswer> EtcdGateway::call_one(const std::string& endpoint, const Attempt& attempt,
                                            milliseconds share, bool& renew) {
  const Clock::time_point until = Clock::now() + share;
  auto token = this->token(endpoint, share, std::exchange(renew, false));
  if (!token) return token.error();
  // What the token has left of the time; 0 would be no limit.
  share = std::max(std::chrono::duration_cast<milliseconds>(until - Clock::now()), milliseconds{1});
  auto handle = take_handle();
  if (handle == nullptr) return Error{Code::kOutOfMemory, "etcd"};
  const HttpAnswer answer = handle->post(
      {endpoint + attempt.path, attempt.body, *token, share, attempt.repeat == Repeat::kNever});
  give_back(std::move(handle));
  const bool may_have_run = answer.sent && attempt.repeat == Repeat::kNever;
  if (answer.status == 0) {
    const Error error = no_answer(answer, endpoint);
    if (may_have_run) return GatewayAnswer{{}, error};
    return error;
  }
  Json json = Json::parse(answer.body, nullptr, false);
  if (answer.status == kHttpOk && json.is_object()) return GatewayAnswer{std::move(json), {}};
  if (answer.status == kHttpNotFound && !json.is_object())
    return said(Code::kUnsupported, "gateway of etcd", endpoint, attempt.path);
  if (!json.is_object()) {
    // A proxy's answer, such as "504": it may have passed the request on.
    const Error error =
        said(answer.status >= kHttpServerFault ? Code::kUnreachable : Code::kProtocol, "etcd",
             endpoint, "HTTP status " + std::to_string(answer.status));
    if (may_have_run) return GatewayAnswer{{}, error};
    return error;
  }
  const Refusal refusal = refusal_of(json);
  renew = is_of_token(refusal) && !options_.user.empty();
  if (const auto error = certain_error(refusal, endpoint)) return *error;
  const Error error =
      said(refusal.code == kDeadlineExceeded || refusal.text.find("timed out") != std::string::npos
               ? Code::kTimedOut
               : Code::kUnreachable,
           "etcd", endpoint, refusal.text);
  if (may_have_run) return GatewayAnswer{{}, error};
  return error;
}

Result<GatewayAnswer> EtcdGateway::call_all(const Attempt& attempt) {
  const std::size_t count = endpoints_.size();
  const std::size_t first = first_.load(std::memory_order_relaxed);
  Error last{Code::kUnreachable, "etcd"};
  std::optional<Error> refused;  // tells more than that others do not answer
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (first + i) % count;
    // An endpoint that stands still leaves time for the others.
    bool renew = false;
    for (int round = 0; round < 2; ++round) {
      const auto left = std::chrono::duration_cast<milliseconds>(attempt.until - Clock::now());
      if (left.count() <= 0)
        return last.code() == Code::kUnreachable && i > 0
                   ? last
                   : said(Code::kTimedOut, "etcd", endpoints_[index], "");
      const auto share = std::max(left / static_cast<int>(count - i), std::min(kShareMin, left));
      auto answer = call_one(endpoints_[index], attempt, share, renew);
      if (answer) {
        // An endpoint that takes a transaction and does not answer does not get the next one, too.
        first_.store(answer->unknown ? (index + 1) % count : index, std::memory_order_relaxed);
        return answer;
      }
      last = answer.error();
      if (!renew) break;
    }
    if (!is_of_endpoint(last)) return last;
    if (!refused && last.operation() == kCertificate.text()) refused = last;
  }
  return refused.value_or(last);
}

Result<GatewayAnswer> EtcdGateway::call(std::string_view path, const Json& request, Repeat repeat,
                                        std::chrono::nanoseconds limit) {
  return call_all({std::string{path}, request.dump(), repeat, Clock::now() + limit});
}

}  // namespace remora::volume
