#include "support/server.h"

#include <array>
#include <cstdio>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <sys/signalfd.h>
#include <unistd.h>
#include <vector>

#include <remora/engine/server.h>
#include <remora/metrics/registry.h>

#include "support/transport.h"

namespace remora::test {

config::ServerConfig server_config(TransportKind transport, const ServerOptions& options) {
  using config::Availability;
  config::ServerConfig made;
  made.listen.address = listen_address(transport);
  made.listen.port = options.port;
  const Availability other = options.all_transports ? Availability::kAuto : Availability::kOff;
  made.transports.rdma = transport == TransportKind::kRdma ? Availability::kRequired : other;
  made.transports.shm = transport == TransportKind::kShm ? Availability::kRequired : other;
  made.transports.rdma_protection = rdma_protection();
  made.transports.tcp = transport == TransportKind::kTcp ? Availability::kRequired : other;
  made.transports.tcp_threads = 3;  // so that sessions are on different threads
  made.pool.size_bytes = options.pool_bytes;
  made.pool.piece_bytes = options.piece_bytes;
  made.pool.huge_pages = config::HugePages::kNever;
  made.auth = config::Auth::kNone;
  made.limits.regions_max = options.regions_max;
  made.limits.sessions_max = options.sessions_max;
  made.limits.session_lease = options.lease;
  made.limits.session_keep = options.keep;
  // What is cooperative takes no part of it, however slow the machine; what is forced takes all.
  made.limits.revoke_grace = std::chrono::seconds{10};
  // Tests that stop servers with clients say so; the others do not wait.
  made.limits.drain_timeout = options.drain;
  made.log.level = config::LogLevel::kWarn;
  return made;
}

int serve(const HelperArguments& arguments) {
  // Before any thread is made, so that all of them inherit it.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const int signals = ::signalfd(-1, &ends, SFD_CLOEXEC);

  TransportKind transport = TransportKind::kShm;
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kTcp})
    if (arguments.text("transport") == to_string(kind)) transport = kind;
  ServerOptions options;
  options.pool_bytes = arguments.number("pool", options.pool_bytes);
  options.piece_bytes = arguments.number("piece", options.piece_bytes);
  options.lease = std::chrono::milliseconds{
      arguments.number("lease", static_cast<std::uint64_t>(options.lease.count()))};
  options.keep = std::chrono::milliseconds{
      arguments.number("keep", static_cast<std::uint64_t>(options.keep.count()))};
  options.drain = std::chrono::milliseconds{arguments.number("drain")};
  options.port = static_cast<std::uint16_t>(arguments.number("port"));
  auto server = Server::start(server_config(transport, options));
  if (!server) {
    std::fprintf(stderr, "server: %s\n", server.error().message().c_str());
    return 1;
  }
  say("listening " + std::to_string(server->port()));

  const bool deaf = arguments.text("stdin") == "ignore";
  std::array<pollfd, 2> wanted{{{signals, POLLIN, 0}, {deaf ? -1 : STDIN_FILENO, POLLIN, 0}}};
  for (;;) {
    if (::poll(wanted.data(), wanted.size(), -1) < 0) continue;
    if (wanted[0].revents != 0 || !hear()) break;  // it is asked one thing at a time
    const auto sum =
        server->registry().sum("remora_server_sessions_ended_total", {{"reason", "lapsed"}});
    say(sum ? std::to_string(static_cast<std::uint64_t>(*sum)) : "-1");
  }
  server->stop();
  ::close(signals);
  return 0;
}

ServerProcess::ServerProcess(TransportKind transport, const ServerOptions& options)
    : child_{"server",
             {"transport=" + std::string{to_string(transport)},
              "pool=" + std::to_string(options.pool_bytes),
              "piece=" + std::to_string(options.piece_bytes),
              "lease=" + std::to_string(options.lease.count()),
              "keep=" + std::to_string(options.keep.count()),
              "drain=" + std::to_string(options.drain.count()),
              "port=" + std::to_string(options.port)}} {
  const auto line = child_.read_line();
  if (!line || line->rfind("listening ", 0) != 0)
    throw std::runtime_error("the server process does not listen");
  port_ = static_cast<std::uint16_t>(std::stoul(line->substr(10)));
}

void ServerProcess::pause() const { child_.pause(); }
void ServerProcess::resume() const { child_.send_signal(SIGCONT); }

int ServerProcess::lapsed() {
  child_.write_line("lapsed");
  return std::stoi(child_.read_line().value_or("-1"));
}

int ServerProcess::stop() {
  child_.close_input();
  return child_.wait().value_or(-1);
}

}  // namespace remora::test
