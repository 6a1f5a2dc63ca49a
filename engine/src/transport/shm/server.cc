/// The server's side of the shm transport: a Unix socket for control, the region's own memfd handed
/// out for data.

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/log_rate_limiter.h"
#include "transport/listen.h"
#include "transport/shm/socket.h"

namespace remora::transport {

namespace {

/// The page that tells clients whether the server still serves; its state is kStopped when the
/// listener has been destroyed.
class StatusPage {
 public:
  static Result<std::shared_ptr<StatusPage>> create(const ShmIdentity& identity) {
    UniqueFd memory{::memfd_create("remora-status", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!memory) return Error{Code::kSystem, "memfd_create"}.with_errno(errno);
    if (::ftruncate(memory.get(), kShmStatusPageBytes) != 0 || ::fchmod(memory.get(), 0600) != 0)
      return Error{Code::kSystem, "status page"}.with_errno(errno);
    void* address =
        ::mmap(nullptr, kShmStatusPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address == MAP_FAILED) return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno);
    auto page =
        std::make_shared<StatusPage>(std::move(memory), static_cast<ShmStatusPage*>(address));
    page->page_->identity = identity;
    // Clients get no descriptor they could write through without opening the file again.
    if (::fcntl(page->memory_.get(), F_ADD_SEALS,
                F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
      return Error{Code::kSystem, "fcntl(F_ADD_SEALS)"}.with_errno(errno);
    return page;
  }
  StatusPage(UniqueFd memory, ShmStatusPage* page) noexcept
      : memory_{std::move(memory)}, page_{page} {
    set(ShmStatusPage::kServing);
  }
  ~StatusPage() {
    if (!handed_over_) set(ShmStatusPage::kStopped);
    ::munmap(page_, kShmStatusPageBytes);
  }
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  /// The next process serves the same memory: clients may go on with what they have mapped.
  void hand_over() noexcept { handed_over_ = true; }
  void set(ShmStatusPage::State state) noexcept {
    __atomic_store_n(&page_->state, state, __ATOMIC_SEQ_CST);
  }
  [[nodiscard]] Result<UniqueFd> descriptor() const noexcept {
    UniqueFd copy{::fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0)};
    if (!copy) return Error{Code::kSystem, "dup"}.with_errno(errno);
    return copy;
  }

 private:
  UniqueFd memory_;
  ShmStatusPage* page_;
  bool handed_over_ = false;
};

/// How the server learns that a client has died.
enum class DeathTold : std::uint8_t {
  kByPeerDescriptor,    ///< SO_PEERPIDFD: in every PID namespace
  kByProcessId,         ///< pidfd_open(2): where the client's number is seen from here
  kByHangUpAndKeeping,  ///< not at all: the grants go limits.session_keep after the hang-up
};

std::string_view to_string(DeathTold told) noexcept {
  switch (told) {
    case DeathTold::kByPeerDescriptor: return "told by SO_PEERPIDFD";
    case DeathTold::kByProcessId: return "told by pidfd_open(2)";
    case DeathTold::kByHangUpAndKeeping: break;
  }
  return "not told (another PID namespace, and no SO_PEERPIDFD, which needs Linux 6.5): a fence is "
         "busy until limits.session_keep after its hang-up";
}

/// The process at the other end of a socket.
struct PeerProcess {
  UniqueFd exited;  ///< readable when it has exited; none: the kernel does not tell
  DeathTold told = DeathTold::kByHangUpAndKeeping;
};

/// `pid`: of SO_PEERCRED; 0 where it is in a PID namespace that is not seen from here.
PeerProcess open_process(int socket, pid_t pid) noexcept {
#ifdef SO_PEERPIDFD
  constexpr int kPeerProcess = SO_PEERPIDFD;
#else
  constexpr int kPeerProcess = 77;  // asm-generic/socket.h, from Linux 6.5 on
#endif
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  if (::getsockopt(socket, SOL_SOCKET, kPeerProcess, &descriptor, &length) == 0 && descriptor >= 0)
    return {UniqueFd{descriptor}, DeathTold::kByPeerDescriptor};
  // Of a process that has exited already the number may be another's by now, which says no more
  // than that the client lives.
  if (pid != 0)
    if (UniqueFd opened{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))})
      return {std::move(opened), DeathTold::kByProcessId};
  return {};
}

class ShmServerEndpoint final : public ServerEndpoint, private MappingClient {
 public:
  /// `process`: a pidfd of the client's; none where the kernel does not tell.
  ShmServerEndpoint(UniqueFd socket, std::string peer, UniqueFd process, pid_t pid)
      : socket_{std::move(socket)},
        peer_{std::move(peer)},
        process_{std::move(process)},
        pid_{pid} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kShm; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return socket_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    return receive_message(socket_.get());
  }
  /// Room for all answers a client may wait for is in the socket: no room means that it does not
  /// read, and that ends its session.
  Status send(ControlMessage message) noexcept override {
    return send_message(socket_.get(), message.bytes, message.descriptors, Clock::now());
  }
  void flush(Deadline /*deadline*/) noexcept override {}  // the socket keeps what was sent
  void expect_lanes(const LaneTicket& /*ticket*/) noexcept override {}

  Result<Grant> grant(const GrantRequest& request) noexcept override {
    if (request.memory_fd < 0 || request.extents.size() != 1)
      return Error{Code::kUnsupported, "open"}.with_subject("region was not created for shm");
    Grant made;
    const bool writes = (request.rights & (Rights::kWrite | Rights::kAtomic)) != Rights::kNone;
    const std::string path = "/proc/self/fd/" + std::to_string(request.memory_fd);
    // Not a copy of the server's own descriptor: when the region is removed, the pool counts the
    // memory as orphaned while a client holds this one.
    UniqueFd descriptor{::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC)};
    // Without /proc a writer gets a copy: the pool cannot count the region as orphaned.
    if (!descriptor && errno == ENOENT && writes)
      descriptor = UniqueFd{::fcntl(request.memory_fd, F_DUPFD_CLOEXEC, 0)};
    if (!descriptor) return Error{Code::kSystem, "open memfd"}.with_errno(errno);
    made.descriptors.push_back(std::move(descriptor));
    made.extents.push_back({.length_bytes = request.extents.front().length_bytes});
    made.handle = std::make_unique<GrantHandle>();
    return made;
  }

  void shutdown() noexcept override { ::shutdown(socket_.get(), SHUT_RDWR); }
  [[nodiscard]] const MappingClient* mapping_client() const noexcept override { return this; }
  Status take_over(ServerEndpoint& before) noexcept override {
    // What its client has mapped stays mapped: there is nothing to take over.
    if (dynamic_cast<ShmServerEndpoint*>(&before) != nullptr) return {};
    return Error{Code::kUnsupported, "resume over another transport"};
  }

 private:
  [[nodiscard]] bool has_exited() const noexcept override {
    if (!process_) return false;
    pollfd exited{.fd = process_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&exited, 1, 0) == 1 && (exited.revents & POLLIN) != 0;
  }
  [[nodiscard]] std::uint64_t process_id() const noexcept override {
    return static_cast<std::uint64_t>(pid_);
  }

  UniqueFd socket_;
  std::string peer_;
  std::string device_;
  UniqueFd process_;
  pid_t pid_;
};

class ShmListener final : public Listener {
 public:
  /// `file`: of the socket, at `path`.
  ShmListener(UniqueFd socket, std::string path, const struct stat& file, std::uint16_t port,
              std::shared_ptr<StatusPage> status_page)
      : socket_{std::move(socket)},
        path_{std::move(path)},
        file_{file},
        port_{port},
        status_page_{std::move(status_page)} {}
  /// A file that a later server has put there is not this one's to take away. The number of this
  /// one's is not used again while its socket is open.
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
        log::warn("shm: refused a process of another user (uid {}){}", peer ? peer->uid : 0,
                  refused_lines_.take_left_out());
      return nullptr;
    }
    auto page = status_page_->descriptor();
    if (!page) {
      if (failed_lines_.allows(Clock::now()))
        log::warn("shm: {}{}", page.error().message(), failed_lines_.take_left_out());
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
  /// Which ways of learning of a client's death have been logged: each is logged once.
  void say_how_death_is_told(DeathTold told) noexcept {
    bool& said = said_[static_cast<std::size_t>(told)];
    if (std::exchange(said, true)) return;
    if (told == DeathTold::kByHangUpAndKeeping)
      log::warn("shm: the death of a client is {}", to_string(told));
    else
      log::info("shm: the death of a client is {}", to_string(told));
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

/// A folder in which only this user (and root) can replace a socket. Makes only the default folder:
/// a folder that the environment names and that does not exist is more likely a mistake.
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
  // In a sticky folder of ours others may add files, but not replace the socket.
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
  // The dynamic ports, from a place that differs between processes.
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
