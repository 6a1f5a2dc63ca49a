/// remora-server: offers this machine's memory, as configured in a YAML file, until it is stopped.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <iostream>
#include <malloc.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <remora/config/load.h>
#include <remora/config/memory_limit.h>
#include <remora/config/printable.h>
#include <remora/config/server_config.h>
#include <remora/config/units.h>
#include <remora/metrics/process.h>
#include <remora/metrics/registry.h>
#include <remora/remora.h>

#include "common/exit_code.h"
#include "common/standard_streams.h"
#include "common/usage_error.h"
#include "common/version.h"
#include "server/cluster.h"
#include "server/descriptor_limit.h"
#include "server/log.h"
#include "server/memory_return.h"
#include "server/reload.h"
#include "server/service_manager.h"
#include "server/signals.h"
#include "server/start_progress_report.h"
#include "server/warm_store.h"
#include "server/watchdog.h"

namespace remora::apps {
namespace {

constexpr std::chrono::seconds kMemoryPeriod{5};

struct Options {
  std::string config_path;
  std::string port_file;
  int warm_fd = -1;
  bool check = false;
};

/// The file that tells a script which port was bound. Written atomically (a reader never sees a
/// part of it), removed with the object, unless a later server has replaced it.
class PortFile {
 public:
  explicit PortFile(std::string path) : path_{std::move(path)} {}
  ~PortFile() {
    struct stat now {};
    if (written_ && ::lstat(path_.c_str(), &now) == 0 && now.st_dev == file_.st_dev &&
        now.st_ino == file_.st_ino && now.st_mtim.tv_sec == file_.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == file_.st_mtim.tv_nsec)
      ::unlink(path_.c_str());
  }
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

  Status write(std::uint16_t port) {
    const std::string temporary = path_ + ".new";
    const std::string text = std::to_string(port) + "\n";
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0 && ::write(fd, text.data(), text.size()) == ssize_t(text.size()) &&
                ::fstat(fd, &file_) == 0;
    if (fd >= 0) good = (::close(fd) == 0) && good;
    if (good && ::rename(temporary.c_str(), path_.c_str()) == 0) {
      written_ = true;
      return ok_status();
    }
    const Error error = Error{Code::kSystem, "port file"}.with_subject(path_).with_errno(errno);
    if (fd >= 0) ::unlink(temporary.c_str());
    return error;
  }

 private:
  std::string path_;
  struct stat file_ {};
  bool written_ = false;
};

/// The place in the file of the `rdma` setting with which `subject` begins: "rdma.pkey=0x8001 on
/// ...".
std::string place_of_setting(std::string_view subject, const config::ServerConfig& configuration) {
  const std::string key{subject.substr(0, subject.find('='))};
  const auto found = configuration.origins.find(key);
  if (found == configuration.origins.end()) return {};
  const config::Origin& origin = found->second;
  return key + " is set at " + config::printable(origin.file) + ":" + std::to_string(origin.line);
}

/// The remedy for an error of Server::start() that does not know the file.
std::string start_advice(const Error& error, const config::ServerConfig& configuration) {
  switch (error.code()) {
    case Code::kAddressInUse: return "or change listen.port or metrics.address";
    case Code::kOutOfMemory:
      return error.operation().ends_with("larger than the memory limit")
                 ? ""
                 : "lower pool.size, or free memory";
    case Code::kNotFound:
    case Code::kUnsupported: {
      // The text of these errors is complete.
      if (error.operation() == "pool.warm_restart")
        return "run it under systemd with FileDescriptorStoreMax=, or under a supervisor with "
               "--warm-fd";
      if (error.operation() == "socket folder" || error.operation() == "listen.address" ||
          error.operation() == "metrics.address" ||
          error.operation() == "region that no transport opens")
        return {};
      if (error.operation() == "rdma setting that the port does not have")
        return place_of_setting(error.subject(), configuration);
      if (error.operation() == "rdma_bind_addr")
        return "listen.address must be an address of an RDMA device of this machine";
      std::string devices;
      for (const std::string& device : configuration.transports.rdma_devices)
        devices.append(devices.empty() ? "transports.rdma_device is " : ", ").append(device);
      return (devices.empty() ? "" : devices + "; ") +
             "'ibv_devices' lists RDMA devices; transports.rdma: auto starts without one";
    }
    default: return {};
  }
}

/// `refused`: transports that were tried and left out. They are the cause if none is left, or if a
/// region needs one of them.
int fail_to_start(const Options& options, const config::ServerConfig& configuration,
                  const Error& error, const std::vector<RefusedTransport>& refused = {}) {
  std::string text = "cannot start with " + options.config_path + ": " + error.message();
  const auto shm = std::find_if(
      refused.begin(), refused.end(),
      [](const RefusedTransport& transport) { return transport.kind == TransportKind::kShm; });
  if (error.operation() == "region over shm" && shm != refused.end()) {
    text = "cannot start with " + options.config_path + ": " + std::string{error.subject()} +
           " is for shm, which cannot be offered: " + shm->error.message();
  } else if (error.code() == Code::kUnsupported && !refused.empty()) {
    for (const RefusedTransport& transport : refused)
      text.append("; ").append(to_string(transport.kind)).append(": ") += transport.error.message();
  } else if (const std::string advice = start_advice(error, configuration); !advice.empty()) {
    text += "; " + advice;
  }
  complain(text);
  return to_int(exit_code_of(error));
}

/// Without keys the clients are administrators (RegionRequests::may_administer()).
void warn_of_no_keys(const config::ServerConfig& configuration) {
  const config::Transports& transports = configuration.transports;
  const bool reached =
      transports.rdma != config::Availability::kOff || transports.tcp != config::Availability::kOff;
  const std::string& address = configuration.listen.address;
  if (configuration.auth == config::Auth::kKeys || !reached || config::is_loopback(address)) return;
  log_warn("auth.none",
           "auth is none and listen.address " + address +
               " is no loopback address: every host that reaches it can read and remove every "
               "region, end sessions and drain the server; 'auth: keys' asks clients for keys",
           {{"address", address}});
}

void log_ready(const Server& server, const config::ServerConfig& configuration) {
  std::string where;
  for (const std::string& line : server.listening()) where += (where.empty() ? "" : ", ") + line;
  const std::string metrics = server.metrics_address();
  log_info(
      "server.ready",
      fmt::format("listening on port {}: {}; metrics: {}", server.port(), where,
                  metrics.empty() ? "none" : metrics + "/metrics"),
      {{"port", std::to_string(server.port()), false}, {"addresses", where}, {"metrics", metrics}});
  const auto endpoint = configuration.metrics.address
                            ? config::parse_endpoint(*configuration.metrics.address)
                            : Result<config::Endpoint>{Error{Code::kNotFound, "metrics.address"}};
  const bool asks = !configuration.metrics.token.empty() || !configuration.metrics.user.empty();
  if (endpoint && !asks && !config::is_loopback(endpoint->address))
    log_warn("metrics.open",
             "metrics.address " + *configuration.metrics.address +
                 " is no loopback address and asks for no credentials: every host that reaches it "
                 "can read regions, sessions and addresses of clients; set metrics.token_file",
             {{"address", *configuration.metrics.address}});
  warn_of_no_keys(configuration);
}

/// A signal to stop has arrived while the server started, which has released everything.
int stopped_while_starting(int signal, const Error& error) {
  const bool populating = error.operation() == "populate memory";
  log_info("server.start_stopped",
           fmt::format("SIG{}: stopped while starting{}", ::sigabbrev_np(signal),
                       populating ? ", with " + config::format_size(error.allowed()) + " of " +
                                        config::format_size(error.asked()) + " populated"
                                  : ""),
           {{"signal", ::sigabbrev_np(signal)}});
  notify_service_manager("STOPPING=1");
  return to_int(ExitCode::kOk);
}

/// With pool.warm_restart: leaves the memory to the next process however this one ends, unless the
/// server was stopped for good before.
class MemoryLeft {
 public:
  MemoryLeft(Server& server, const config::Pool& pool)
      : server_{pool.warm_restart ? &server : nullptr} {}
  ~MemoryLeft() {
    if (server_ != nullptr) server_->hand_over();
  }
  MemoryLeft(const MemoryLeft&) = delete;
  MemoryLeft& operator=(const MemoryLeft&) = delete;

 private:
  Server* server_;
};

/// Blocks until the server has been asked to stop, and has stopped.
int serve_until_stopped(const Options& options, const config::ServerConfig& configuration,
                        Signals& signals, Server& server) {
  config::ServerConfig running = configuration;
  const MemoryLeft left{server, configuration.pool};
  auto member = join_cluster(configuration, server);
  if (!member) return fail_to_start(options, configuration, member.error());
  PortFile port_file{options.port_file};
  // A server that is asked to stop before it serves is never reported as ready.
  if (!signals.stop_token().stop_requested()) {
    if (!options.port_file.empty())
      if (const Status written = port_file.write(server.port()); !written)
        return fail_to_start(options, configuration, written.error());
    log_ready(server, configuration);
    notify_service_manager("READY=1\nSTATUS=serving " +
                           config::format_size(configuration.pool.size_bytes));
    signals.on_hang_up([&] { reload(options.config_path, running, server); });
  }
  // A server without a watchdog is better than none.
  auto watchdog = Watchdog::start([&server] { return server.alive(); });
  if (!watchdog)
    log_warn("watchdog.none", "watchdog: " + watchdog.error().message(),
             {{"reason", watchdog.error().message()}});
  MemoryReturn memory{[] { ::malloc_trim(0); }};
  const int signal = signals.wait(kMemoryPeriod, [&] { memory.look(server.status().sessions); });
  signals.on_hang_up(nullptr);
  const bool leaves = configuration.pool.warm_restart && signal == SIGTERM;
  log_info(
      "server.stopping",
      fmt::format("SIG{}: stopping{}; a second one does not wait for clients, a third ends at once",
                  ::sigabbrev_np(signal),
                  leaves ? ", and leaving the memory to the next process" : ""),
      {{"signal", ::sigabbrev_np(signal)}, {"leaves_memory", leaves ? "true" : "false", false}});
  notify_service_manager("STOPPING=1");
  signals.on_second([&server] { server.expedite_stop(); });
  member->reset();  // volumes are not placed on a server that stops
  if (leaves)
    server.hand_over();
  else
    server.stop();
  signals.on_second(nullptr);
  log_info("server.stopped", "stopped");
  return to_int(ExitCode::kOk);
}

/// The store that has the memory of the previous process, and gets that of this one; null: none.
Result<std::shared_ptr<DescriptorStore>> descriptor_store(const Options& options) {
  if (options.warm_fd >= 0) return store_of_supervisor(options.warm_fd);
  return store_of_service_manager();
}

int serve(const Options& options, const config::ServerConfig& configuration) {
  auto store = descriptor_store(options);
  if (!store) return fail_to_start(options, configuration, store.error());
  if (*store != nullptr && !configuration.pool.warm_restart) give_up_stored(**store);
  if (*store == nullptr && configuration.pool.warm_restart)
    return fail_to_start(options, configuration,
                         Error{Code::kUnsupported, "pool.warm_restart"}.with_subject(
                             "no supervisor keeps descriptors for this process"));
  auto watched = Signals::start();
  if (!watched) return fail_to_start(options, configuration, watched.error());
  Signals& signals = **watched;
  log_info("server.starting",
           fmt::format("remora-server {}: preparing a pool of {}", kVersion,
                       config::format_size(configuration.pool.size_bytes)),
           {{"version", kVersion},
            {"pool_bytes", std::to_string(configuration.pool.size_bytes), false}});
  notify_service_manager("STATUS=preparing the pool");
  auto registry = metrics::Registry::create();
  if (!registry) return fail_to_start(options, configuration, registry.error());
  if (const Status added = metrics::register_process_metrics(**registry, kVersion); !added)
    return fail_to_start(options, configuration, added.error());
  std::vector<RefusedTransport> refused;
  StartProgressReport report;
  auto server = Server::start(
      configuration, *registry, &refused, signals.stop_token(),
      [&report](const StartProgress& progress) { report.tell(progress); }, std::move(*store));
  if (server) return serve_until_stopped(options, configuration, signals, *server);
  if (server.error().code() == Code::kCancelled && signals.stop_token().stop_requested())
    return stopped_while_starting(signals.wait(), server.error());
  return fail_to_start(options, configuration, server.error(), refused);
}

int run(const Options& options) {
  const auto configuration = config::load_server(options.config_path);
  if (!configuration) {
    const config::Diagnostics& faults = configuration.error();
    std::cerr << faults.to_string();
    const std::size_t count = faults.size() + faults.dropped();
    complain(options.config_path + ": " + std::to_string(count) +
             (count == 1 ? " fault" : " faults") + "; nothing was started");
    return to_int(ExitCode::kConfiguration);
  }
  if (const std::string_view fault = cluster_fault(*configuration); !fault.empty()) {
    complain(options.config_path + ": cluster: " + std::string{fault} + "; nothing was started");
    return to_int(ExitCode::kConfiguration);
  }
  if (options.check) {
    std::cout << config::printable(options.config_path) << ": ok\n";
    for (const std::string& secret : config::exposed_secrets(*configuration))
      complain("warning: " + secret);
    if (const auto exceeded = config::exceeded_memory_limit(*configuration))
      complain("warning: " + *exceeded);
    return to_int(ExitCode::kOk);
  }
  // The reader of a pipe may end at any time: then a write to it must fail.
  ::signal(SIGPIPE, SIG_IGN);
  log_to_stderr(configuration->log);
  for (const std::string& secret : config::exposed_secrets(*configuration))
    log_warn("config.secret_exposed", secret);
  raise_descriptor_limit(configuration->limits);
  return serve(options, *configuration);
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CLI::App app{"Offers this machine's memory to Remora clients, in the foreground.",
               "remora-server"};
  app.footer(
      "SIGTERM and SIGINT stop it cleanly; a second one does not wait for clients, a third ends\n"
      "it at once. SIGHUP takes clients, log.level and most of limits from the file again.\n"
      "With pool.warm_restart, SIGTERM leaves the memory to the next process, SIGINT does not.\n"
      "Exit codes: 0 stopped, 2 usage, 3 no such device, 4 address in use, 5 memory or\n"
      "permissions, 7 the configuration is wrong.");
  app.add_option("--config", options.config_path,
                 "YAML file: the memory to offer, where to listen, the limits")
      ->type_name("FILE")
      ->required();
  app.add_flag("--check", options.check, "Check the file and start nothing");
  app.add_option("--port-file", options.port_file,
                 "Write the port that was bound to this file once clients can connect")
      ->type_name("FILE");
  app.add_option("--warm-fd", options.warm_fd,
                 "For pool.warm_restart without systemd: the number of a socket to a supervisor "
                 "that keeps descriptors")
      ->type_name("FD");
  app.set_version_flag("--version", "remora-server " + std::string{kVersion});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    complain(explain_usage(app, error, "remora-server"));
    return to_int(ExitCode::kUsage);
  }
  return run(options);
}

}  // namespace
}  // namespace remora::apps

int main(int argc, char** argv) {
  remora::apps::hold_hang_up();
  remora::apps::open_closed_standard_streams();
  try {
    return remora::apps::parse_and_run(argc, argv);
  } catch (const std::exception& exception) {
    std::cerr << "remora-server: internal error: " << exception.what() << '\n';
    return remora::apps::to_int(remora::apps::ExitCode::kInternal);
  }
}
