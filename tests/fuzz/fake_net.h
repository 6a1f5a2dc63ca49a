#pragma once

/// A real server and real clients without a network between them: every message of a control
/// channel passes through the fuzzer's hands, which waits until it has been served.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "client/engine/engine_core.h"
#include "client/session/session_core.h"
#include "input.h"
#include "server/server_core.h"
#include "transport/client_endpoint.h"
#include "transport/listener.h"
#include "transport/tcp/session.h"

namespace remora::fuzz {

using Bytes = std::vector<std::byte>;

/// What one connection of the server and the fuzzer share.
class ServerWire {
 public:
  ServerWire();

  // The fuzzer's side.
  /// Says it to the server, and waits until its control thread has taken it.
  void say(Bytes message);
  /// The server will find that the client has hung up.
  void hang_up();
  /// What the server has said since the last call.
  std::vector<Bytes> hear();
  /// The server has ended the connection.
  [[nodiscard]] bool shut() const;
  /// Grants that hold.
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

/// A memory server whose only listener is the fuzzer's. Begins every run as if new, or is made
/// anew.
class FuzzServer {
 public:
  explicit FuzzServer(config::ServerConfig config);
  ~FuzzServer();
  FuzzServer(const FuzzServer&) = delete;
  FuzzServer& operator=(const FuzzServer&) = delete;

  std::shared_ptr<ServerWire> connect();
  /// Waits until the worker has served what it had been given.
  void settle();
  /// Says it, and waits until it has been served.
  void say(ServerWire& wire, Bytes message);
  /// Ends the connections, removes the regions, and holds what is left against nothing at all.
  void end_run();
  [[nodiscard]] detail::ServerCore& core() noexcept { return *core_; }

 private:
  class FuzzListener;
  void start();

  config::ServerConfig config_;
  std::shared_ptr<metrics::Registry> registry_;
  std::unique_ptr<detail::ServerCore> core_;
  FuzzListener* listener_ = nullptr;  ///< the server's
  std::vector<std::shared_ptr<ServerWire>> wires_;
  std::size_t runs_ = 0;
};

/// What a client's connection and the fuzzer share.
class ClientWire {
 public:
  /// `on_send`: what becomes of what the client says, in the client's thread.
  explicit ClientWire(std::function<void(Bytes)> on_send);
  /// To the client.
  void say(Bytes message);
  void hang_up();
  /// On return `on_send` is not running and never will: a session may end in the engine's thread,
  /// and say goodbye there, when it has no other owner.
  void forget();

 private:
  friend class FakeClientEnd;
  bool pass(Bytes said);
  mutable std::mutex mutex_;
  std::deque<Bytes> inbox_;
  UniqueFd event_;
  bool ended_ = false;
  std::mutex send_mutex_;
  std::function<void(Bytes)> on_send_;
};

/// The client's end of such a wire; its lanes take everything and complete nothing.
std::unique_ptr<transport::ClientEndpoint> client_end(std::shared_ptr<ClientWire> wire);

/// No lines of the product's own: bytes of the input would fill the screen.
void silence();

}  // namespace remora::fuzz
