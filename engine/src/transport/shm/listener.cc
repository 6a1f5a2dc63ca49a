/// The listener of the shm transport: a Unix socket.

#include <array>
#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/log_rate_limiter.h"
#include "transport/listen.h"
#include "transport/shm/peer_process.h"
#include "transport/shm/server_endpoint.h"
#include "transport/shm/socket.h"
#include "transport/shm/status_page.h"

namespace remora::transport {

namespace {

class ShmListener final : public Listener {
 public:
  /// `file`: the state of the socket's file, at `path`.
  ShmListener(UniqueFd socket, std::string path, const struct stat& file, std::uint16_t port,
              std::shared_ptr<StatusPage> status_page)
      : socket_{std::move(socket)},
        path_{std::move(path)},
        file_{file},
        port_{port},
        status_page_{std::move(status_page)} {}
  /// Removes the socket's file unless a later server has replaced it. The inode of this server's
  /// file is not reused while its socket is open.
  ~ShmListener() override {
    struct stat now {};
    if (::lstat(path_.c_str(), &now) == 0 && now.st_dev == file_.st_dev &&
        now.st_ino == file_.st_ino)
      ::unlink(path_.c_str());
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kShm; }
  [[nodiscard]] int event_fd() const noexcept override { return socket_.get(); }

  Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept override {
    std::vector<std::unique_ptr<ServerEndpoint>> arrived;
    while (true) {
      UniqueFd socket{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || !arrived.empty()) return arrived;
        return Error{Code::kSystem, "accept"}.with_subject(path_).with_errno(errno);
      }
      if (auto endpoint = admit(std::move(socket))) arrived.push_back(std::move(endpoint));
    }
  }

  [[nodiscard]] std::string description() const override { return "shm " + path_; }
  void hand_over() noexcept override { status_page_->hand_over(); }
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }

 private:
  std::unique_ptr<ServerEndpoint> admit(UniqueFd socket) {
    const auto peer = peer_credentials(socket.get());
    if (!peer || (peer->uid != ::geteuid() && peer->uid != 0)) {
      if (refused_lines_.allows(Clock::now()))
        log::warn({"connection.refused", "uid"},
                  "shm: refused a process of another user (uid {}){}", peer ? peer->uid : 0,
                  refused_lines_.take_left_out());
      return nullptr;
    }
    auto page = status_page_->descriptor();
    if (!page) {
      if (failed_lines_.allows(Clock::now()))
        log::warn({"connection.failed", "reason"}, "shm: {}{}", page.error().message(),
                  failed_lines_.take_left_out());
      return nullptr;
    }
    const ShmPreface preface;
    const UniqueFd descriptors[] = {std::move(*page)};
    const auto sent = send_message(socket.get(), std::as_bytes(std::span{&preface, 1}), descriptors,
                                   Clock::now());
    if (!sent) return nullptr;
    PeerProcess process = open_process(socket.get(), peer->pid);
    say_how_death_is_told(process.told);
    std::string name =
        peer->pid != 0 ? "pid " + std::to_string(peer->pid) : "a process of another PID namespace";
    return std::make_unique<ShmServerEndpoint>(std::move(socket), std::move(name),
                                               std::move(process.exited), peer->pid);
  }
  /// Logs by which of these ways the server learns of a client's death: each way is logged once.
  void say_how_death_is_told(DeathTold told) noexcept {
    bool& said = said_[static_cast<std::size_t>(told)];
    if (std::exchange(said, true)) return;
    if (told == DeathTold::kByHangUpAndKeeping)
      log::warn({"shm.client_death", "how"}, "shm: the death of a client is {}", to_string(told));
    else
      log::info({"shm.client_death", "how"}, "shm: the death of a client is {}", to_string(told));
  }

  UniqueFd socket_;
  std::string path_;
  struct stat file_;
  std::uint16_t port_;
  std::shared_ptr<StatusPage> status_page_;
  log::LogRateLimiter refused_lines_{1};
  log::LogRateLimiter failed_lines_{1};
  std::array<bool, 3> said_{};
};

/// A folder in which only this user (and root) can replace a socket. Creates only the default
/// folder: if the environment names a folder that does not exist, that is more likely a mistake.
Status prepare_folder() {
  const ShmFolder folder = shm_folder();
  const auto wrong = [&folder](Code code) {
    return Error{code, "socket folder"}.with_subject(folder.path);
  };
  if (!folder.named && ::mkdir(folder.path.c_str(), 0700) != 0 && errno != EEXIST)
    return wrong(Code::kSystem).with_errno(errno);
  struct stat status {};
  if (::stat(folder.path.c_str(), &status) != 0)
    return wrong(errno == ENOENT   ? Code::kNotFound
                 : errno == EACCES ? Code::kPermissionDenied
                                   : Code::kSystem)
        .with_errno(errno);
  if (!S_ISDIR(status.st_mode)) return wrong(Code::kSystem).with_errno(ENOTDIR);
  if (status.st_uid != ::geteuid())
    return wrong(Code::kPermissionDenied).with_reason(Reason::kOtherUser);
  // In this user's sticky folder other users may add files, but not replace the socket.
  if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
    return wrong(Code::kPermissionDenied).with_reason(Reason::kWorldWritable);
  return {};
}

/// Whether a server answers there; a killed server leaves a socket on which no process answers.
bool is_alive(const sockaddr_un& address) {
  const UniqueFd probe{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const bool refused =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      (errno == ECONNREFUSED || errno == ENOENT);
  return !refused;
}

Result<std::unique_ptr<Listener>> listen_on(const ListenAddress& listen_address,
                                            std::uint16_t port) {
  const std::string path = shm_socket_path(port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{Code::kInvalidArgument, "bind"}.with_subject(path).with_limit(
        path.size(), sizeof address.sun_path - 1);
  path.copy(address.sun_path, path.size());
  if (auto folder = prepare_folder(); !folder) return folder.error();
  struct stat file {};
  if (::lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode))
      return Error{Code::kAlreadyExists, "socket file (no socket is there: move it away)"}
          .with_subject(path);
    if (is_alive(address)) return Error{Code::kAddressInUse, "bind"}.with_subject(path);
    ::unlink(path.c_str());
  }
  auto page =
      StatusPage::create(make_identity(listen_address.text, port, listen_address.addresses));
  if (!page) return page.error();
  UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return Error{Code::kSystem, "socket"}.with_errno(errno);
  // The mode of the socket file comes from that of the unbound socket, so no other user can connect
  // in between.
  ::fchmod(socket.get(), 0600);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const Code code = errno == EADDRINUSE ? Code::kAddressInUse : Code::kSystem;
    return Error{code, "bind"}.with_subject(path).with_errno(errno);
  }
  ::chmod(path.c_str(), 0600);
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return Error{Code::kSystem, "listen"}.with_subject(path).with_errno(errno);
  if (::lstat(path.c_str(), &file) != 0)
    return Error{Code::kSystem, "stat"}.with_subject(path).with_errno(errno);
  return std::unique_ptr<Listener>{
      std::make_unique<ShmListener>(std::move(socket), path, file, port, std::move(*page))};
}

}  // namespace

Result<std::unique_ptr<Listener>> listen_shm(std::uint16_t port, const ListenAddress& address) {
  if (port != 0) return listen_on(address, port);
  // The dynamic ports, in an order that differs between processes.
  constexpr int kFirst = 49152;
  constexpr int kCount = 65536 - kFirst;
  Result<std::unique_ptr<Listener>> listener = Error{Code::kAddressInUse, "bind"};
  for (int i = 0; i < kCount; ++i) {
    listener =
        listen_on(address, static_cast<std::uint16_t>(kFirst + (::getpid() * 31 + i) % kCount));
    if (listener || (listener.error().code() != Code::kAddressInUse &&
                     listener.error().code() != Code::kAlreadyExists))
      break;
  }
  return listener;
}

}  // namespace remora::transport
