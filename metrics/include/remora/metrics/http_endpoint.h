#pragma once

/// A small HTTP server that shows a registry to Prometheus, health to an orchestrator, and all of
/// it to a person.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::metrics {

/// The answer of /healthz: 200 or 503, and one line of text.
struct Health {
  bool ok = true;
  std::string text = "ok";
};

/// Credentials for readers of `/metrics`, `/history` and `/status`. All empty: none are asked for.
/// Where both are given, either will do. There is no TLS: on a network that others listen to, a
/// credential is read with the first request.
struct HttpAccess {
  /// `Authorization: Bearer <token>`: printable ASCII without spaces.
  std::string token = {};
  /// HTTP Basic: what a browser asks for. Both or none; `user` without a colon.
  std::string user = {};
  std::string password = {};
};

/// Which part of long lists `/status` is asked for: `/status?limit=100&sessions_after=...`.
struct StatusQuery {
  static constexpr std::size_t kLimitMax = 10'000;
  /// Members of each list at most, 1 to kLimitMax: `limit`.
  std::size_t limit = 1'000;
  /// Lists begin behind these: `sessions_after`, `regions_after`; empty: at their beginning. What
  /// an answer has as `sessions_next` and `regions_next`, which are null where nothing follows.
  std::string sessions_after = {};
  std::string regions_after = {};
};

struct HttpOptions {
  /// `IPv4:port`, `[IPv6]:port` or `localhost:port`; `[::]:port` serves IPv4 too, port 0 lets the
  /// kernel choose. Bind what the monitoring network may read.
  std::string address = "127.0.0.1:9471";
  HttpAccess access = {};
  /// Names by which it may be asked (`Host`), besides addresses, `localhost` and the name of this
  /// machine (gethostname(2), also its first label); "*": any. Other names get a 421, so that no
  /// page of another site reads it by a name of its own (DNS rebinding); `/healthz` and `/readyz`
  /// answer to all.
  std::vector<std::string> allowed_hosts = {};
  /// `/healthz`, `/readyz` and `/status` ask these, on a serving thread, maybe several at once;
  /// they must not block for long. One that throws counts as unhealthy, not ready, or is a 500.
  ///
  /// None: always healthy.
  std::function<Health()> health = {};
  /// Why this process should get no work now, a line each; ready where there are none.
  std::function<std::vector<std::string>()> unready = {};
  /// A JSON object, to which `ready`, `reasons` and `uptime_seconds` are added. None:
  /// `{"kind": "process"}`.
  std::function<std::string()> status = {};
  /// Where it is set, it is asked instead of `status`. Where it is not, the parameters of a request
  /// are ignored.
  std::function<std::string(const StatusQuery&)> status_page = {};
  /// How much of the past `/history` and the page show, a sample each two seconds, kept in this
  /// process: 8 bytes a sample and series, some 2 MB for an hour. 0: none; at most 24 hours.
  std::chrono::minutes history{60};
  /// Requests answered, and so threads, at once; 1 to 1,024. One more gets a 503. Connections whose
  /// request has not come yet take no thread; up to 512 of them wait (a quarter of the open files
  /// that the process may have, where that is less), and one more takes the place of the oldest.
  std::size_t connections_max = 16;
  /// From accept to the last byte sent, whatever the peer does; then the connection is cut.
  std::chrono::milliseconds request_timeout{10'000};
};

/// Serves `/metrics`, `/healthz`, `/readyz`, `/status`, `/history` and, at `/`, a page that shows
/// them, by GET and HEAD, one request a connection (`Connection: close`), compressed where the
/// client accepts that; 421 for a foreign name in `Host`, 401 without the credentials that
/// HttpOptions::access asks for, 404 for other paths, 405 for other methods. The page itself,
/// `/healthz` and `/readyz` need no credentials.
///
/// Has threads of its own: one that accepts and reads the heads of requests, one that keeps the
/// history, and one for each request that is answered, started when needed. A silent client costs a
/// descriptor until request_timeout, one that reads its answer slowly a thread; neither disturbs
/// others, and recording threads never wait for any of this.
/// Owns its registry jointly. The destructor stops serving, cutting connections in progress, and
/// waits for its threads: for as long as a callback of the registry or `health` runs, and no
/// longer.
///
/// In a child of fork(2) the parent's goes on serving in the parent, whatever becomes of the copy.
///
/// Thread safety: an object is for one thread at a time.
class HttpEndpoint {
 public:
  /// Binds and begins to serve before it returns.
  /// Errors: kInvalidArgument (malformed address, credential or option, null registry);
  /// kAddressInUse; kPermissionDenied (a privileged port); kUnreachable (no such address on this
  /// host); kSystem. The subject is the address.
  static Result<HttpEndpoint> start(std::shared_ptr<Registry> registry, HttpOptions options);
  ~HttpEndpoint();
  HttpEndpoint(HttpEndpoint&&) noexcept;
  HttpEndpoint& operator=(HttpEndpoint&&) noexcept;

  /// The port it listens on, the kernel's choice included. 0 once moved from.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// `host:port` as a client may use it, with the real port. Empty once moved from.
  [[nodiscard]] std::string address() const;

 private:
  class Impl;
  explicit HttpEndpoint(std::unique_ptr<Impl> impl) noexcept;
  remora::detail::OwnedUnique<Impl> impl_;
};

}  // namespace remora::metrics
