#pragma once

/// A real server and real clients without a network between them: the fuzzer passes on every
/// message of a control channel, and waits until it has been served.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "client/engine/engine_core.h"
#include "client/session/session_core.h"
#include "input.h"
#include "server/server_core.h"
#include "transport/client_endpoint.h"
#include "transport/listener.h"
#include "transport/tcp/served_session.h"

namespace remora::fuzz {

using Bytes = std::vector<std::byte>;
Bytes bytes_of(std::string_view text);

/// The longest time of a call of the product. No call has to wait: a silent peer has hung up.
inline constexpr std::chrono::seconds kCallMax{10};

/// The state that one connection of the server shares with the fuzzer.
class ServerWire {
 public:
  ServerWire();

  // For the fuzzer.
  /// Sends a message to the server, and waits until the control thread has received it.
  void say(Bytes message);
  /// Ends the connection as if the client had hung up.
  void hang_up();
  /// The messages that the server has sent since the last call.
  std::vector<Bytes> hear();
  /// Whether the server has ended the connection.
  [[nodiscard]] bool shut() const;
  /// The number of open grants.
  [[nodiscard]] std::size_t grants() const noexcept { return grants_->load(); }

 private:
  friend class FakeServerEnd;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Bytes> inbox_;
  std::vector<Bytes> outbox_;
  UniqueFd event_;
  bool client_gone_ = false;
  bool drained_ = true;  ///< the server has seen that there is nothing more
  bool shut_ = false;
  std::shared_ptr<std::atomic<std::size_t>> grants_ = std::make_shared<std::atomic<std::size_t>>();
};

/// A server with so much memory, without a transport of its own, and without a timeout that a run
/// could reach. The caller sets the authentication.
config::ServerConfig server_config(std::uint64_t pool_bytes);

/// A memory server with a listener of the fuzzer only. end_run() resets or replaces it for the next
/// run.
class FuzzServer {
 public:
  explicit FuzzServer(config::ServerConfig config);
  ~FuzzServer();
  FuzzServer(const FuzzServer&) = delete;
  FuzzServer& operator=(const FuzzServer&) = delete;

  std::shared_ptr<ServerWire> connect();
  /// Waits until the worker has done all jobs that it has been given.
  void settle();
  /// Sends a message, and waits until the server has served it.
  void say(ServerWire& wire, Bytes message);
  /// Ends the connections, removes the regions, and checks that no session, grant or byte is left.
  void end_run();
  [[nodiscard]] detail::ServerCore& core() noexcept { return *core_; }

 private:
  class FuzzListener;
  void start();

  config::ServerConfig config_;
  std::shared_ptr<metrics::Registry> registry_;
  std::unique_ptr<detail::ServerCore> core_;
  FuzzListener* listener_ = nullptr;  ///< owned by the server
  std::vector<std::shared_ptr<ServerWire>> wires_;
  std::size_t runs_ = 0;
};

/// The state that a connection of the client shares with the fuzzer.
class ClientWire {
 public:
  /// `on_send`: gets this wire and each message of the client, in the client's thread.
  explicit ClientWire(std::function<void(ClientWire&, Bytes)> on_send);
  /// Sends a message to the client.
  void say(Bytes message);
  void hang_up();
  /// `on_send` does not run any more after the return. Else a session without another owner could
  /// still send its goodbye in the engine's thread.
  void forget();

 private:
  friend class FakeClientEnd;
  bool pass(Bytes said);
  mutable std::mutex mutex_;
  std::deque<Bytes> inbox_;
  UniqueFd event_;
  bool ended_ = false;
  std::mutex send_mutex_;
  std::function<void(ClientWire&, Bytes)> on_send_;
};

/// The client's end of such a wire. Its lanes take every request and complete none.
std::unique_ptr<transport::ClientEndpoint> client_end(std::shared_ptr<ClientWire> wire);

/// Options of an engine of the client "client", whose calls take kCallMax at most.
EngineOptions engine_options();
/// A session of `engine` over the connections that `connect` makes.
Result<std::shared_ptr<detail::SessionCore>> start_session(
    const std::shared_ptr<detail::EngineCore>& engine,
    std::function<Result<std::unique_ptr<transport::ClientEndpoint>>()> connect);

}  // namespace remora::fuzz
