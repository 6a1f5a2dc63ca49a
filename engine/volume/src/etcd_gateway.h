#pragma once

/// Sends requests to etcd's v3 JSON gateway.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/open_store.h>

#include "http_handle.h"

namespace remora::volume {

/// Whether a request may reach etcd more than once.
enum class Repeat : std::uint8_t {
  kAllowed,  ///< a read, or a change that is the same twice
  kNever     ///< a transaction
};

/// The answer to a request that may have been carried out.
struct GatewayAnswer {
  nlohmann::json json{};
  /// The request was sent and no answer came, so its effect is unknown; `json` is empty then.
  std::optional<Error> unknown{};
};

/// Several endpoints, of which the last that has answered is tried first. One connection for each
/// thread that calls at the same time is kept. Thread-safe.
///
/// Errors: kUnreachable, kTimedOut, kPermissionDenied, kProtocol, kUnsupported, kNotFound,
/// kLimitExceeded, kBusy, kOutOfRange (a revision that was compacted). The subject has the endpoint
/// and what it said.
class EtcdGateway {
 public:
  EtcdGateway(std::vector<std::string> endpoints, StoreOptions options);

  /// POSTs `request` to `path` ("/v3/kv/range").
  Result<GatewayAnswer> call(std::string_view path, const nlohmann::json& request, Repeat repeat,
                             std::chrono::nanoseconds limit);
  [[nodiscard]] const std::vector<std::string>& endpoints() const noexcept { return endpoints_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// The requests of one call(). Knows what is tried next.
  struct Attempt {
    std::string path;
    std::string body;
    Repeat repeat;
    Clock::time_point until;
  };
  Result<GatewayAnswer> call_all(const Attempt& attempt);
  Result<GatewayAnswer> call_one(const std::string& endpoint, const Attempt& attempt,
                                 std::chrono::milliseconds share, bool& renew);
  /// A token for the user; empty without one. `renew`: the one that is known was refused.
  Result<std::string> token(const std::string& endpoint, std::chrono::milliseconds share,
                            bool renew);
  std::unique_ptr<HttpHandle> take_handle();
  void give_back(std::unique_ptr<HttpHandle> handle);

  const std::vector<std::string> endpoints_;
  const StoreOptions options_;
  /// The endpoint that has answered last, or the one after a transaction without an answer.
  std::atomic<std::size_t> first_{0};
  remora::detail::Mutex mutex_;
  std::vector<std::unique_ptr<HttpHandle>> idle_ REMORA_GUARDED_BY(mutex_);
  std::string token_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume
