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

/// Credentials for readers of `/metrics`, `/history` and `/status`. All empty: readers need none.
/// If both are given, either is sufficient. There is no TLS: on a network with an eavesdropper the
/// first request discloses the credential.
struct HttpAccess {
  /// `Authorization: Bearer <token>`: printable ASCII without spaces.
  std::string token = {};
  /// HTTP Basic, for which a browser asks its user. Both or none; `user` without a colon.
  std::string user = {};
  std::string password = {};
};

/// The part of long lists that a request of `/status` wants:
/// `/status?limit=100&sessions_after=...`.
struct StatusQuery {
  static constexpr std::size_t kLimitMax = 10'000;
  /// Members of each list at most, 1 to kLimitMax: `limit`.
  std::size_t limit = 1'000;
  /// Lists begin after these members: `sessions_after`, `regions_after`; empty: at their beginning.
  /// The values for the next request are `sessions_next` and `regions_next` of an answer, which are
  /// null after the last member.
  std::string sessions_after = {};
  std::string regions_after = {};
};

/// The options of an endpoint.
struct HttpOptions {
  /// `IPv4:port`, `[IPv6]:port` or `localhost:port`; `[::]:port` also serves IPv4, port 0 lets the
  /// kernel choose. Bind an address that only the monitoring network reaches.
  std::string address = "127.0.0.1:9471";
  HttpAccess access = {};  ///< all empty: readers need no credentials
  /// Names that a request may have in `Host`, besides addresses, `localhost` and the name of this
  /// machine (gethostname(2), also its first label); "*": any. Other names get a 421, so that no
  /// page of another site can read the endpoint by a name of that site (DNS rebinding); `/healthz`
  /// and `/readyz` accept all names.
  std::vector<std::string> allowed_hosts = {};
  /// `/healthz`, `/readyz` and `/status` call these functions on a serving thread, maybe several at
  /// once; they must not block for long. An exception means unhealthy, not ready, or an answer 500.
  ///
  /// None: always healthy.
  std::function<Health()> health = {};
  /// Why this process should get no work now, one line for each reason; empty: ready.
  std::function<std::vector<std::string>()> unready = {};
  /// Returns a JSON object, to which `ready`, `reasons` and `uptime_seconds` are added. None:
  /// `{"kind": "process"}`.
  std::function<std::string()> status = {};
  /// If it is set, it is called instead of `status`. If it is not set, the parameters of a request
  /// are ignored.
  std::function<std::string(const StatusQuery&)> status_page = {};
  /// The time that `/history` and the page show, with a sample every two seconds, kept in this
  /// process: 8 bytes for each sample and series, some 2 MB for an hour. 0: none; at most 24 hours.
  std::chrono::minutes history{60};
  /// The most requests answered at once, and so threads; 1 to 1,024. A further one gets a 503.
  /// Connections whose request has not arrived yet use no thread; up to 512 of them wait (or a
  /// quarter of the process's limit of open files, if that is less), and a further one displaces
  /// the oldest.
  std::size_t connections_max = 16;
  /// The time from accept to the last byte sent, whatever the peer does; then the connection is
  /// closed.
  std::chrono::milliseconds request_timeout{10'000};
};

/// Serves `/metrics`, `/healthz`, `/readyz`, `/status`, `/history` and, at `/`, a page that shows
/// them, by GET and HEAD, one request for each connection (`Connection: close`), compressed if the
/// client accepts that; 421 for a foreign name in `Host`, 401 without the credentials of
/// HttpOptions::access, 404 for other paths, 405 for other methods. The page itself, `/healthz` and
/// `/readyz` need no credentials.
///
/// Has threads of its own: one that accepts and reads the heads of requests, one that keeps the
/// history, and one for each request that is answered, started when needed. A silent client uses a
/// descriptor until request_timeout, a client that reads its answer slowly uses a thread; neither
/// delays others, and recording threads never wait for the endpoint. Shares the ownership of its
/// registry. The destructor stops serving, closes connections in progress, and waits for its
/// threads: as long as a callback of the registry or `health` runs, and no longer.
///
/// After fork(2) the parent's endpoint continues to serve in the parent, whatever happens to the
/// copy in the child.
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
  /// Stops the endpoint that this object had, as the destructor does.
  HttpEndpoint& operator=(HttpEndpoint&&) noexcept;

  /// The port on which it listens, also if the kernel has chosen it. 0 once moved from.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// `host:port` as a client may use it, with the real port. Empty once moved from.
  [[nodiscard]] std::string address() const;

 private:
  class Impl;
  explicit HttpEndpoint(std::unique_ptr<Impl> impl) noexcept;
  remora::detail::OwnedUnique<Impl> impl_;
};

}  // namespace remora::metrics
