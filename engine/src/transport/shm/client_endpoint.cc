/// The client's side of the shm transport: maps the region's own memfd. The client's engine copies
/// the bytes.

#include <bit>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <span>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/core_dump.h"
#include "transport/connect.h"
#include "transport/shm/mapping.h"
#include "transport/shm/socket.h"

namespace remora::transport {

namespace {

class ShmClientEndpoint final : public ClientEndpoint {
 public:
  ShmClientEndpoint(UniqueFd socket, std::shared_ptr<Mapping> status_page,
                    const ConnectOptions& options)
      : socket_{std::move(socket)},
        status_page_{std::move(status_page)},
        core_dump_{options.core_dump},
        populate_{options.populate} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kShm; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  Status send(ControlMessage message, Deadline deadline) noexcept override {
    return send_message(socket_.get(), message.bytes, message.descriptors, deadline);
  }
  [[nodiscard]] int event_fd() const noexcept override { return socket_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    return receive_message(socket_.get());
  }
  [[nodiscard]] std::optional<DirectPath> direct_path() const noexcept override {
    const auto* page = reinterpret_cast<const ShmStatusPage*>(status_page_->address());
    return DirectPath{
        .state = &page->state, .serving_value = ShmStatusPage::kServing, .hold = status_page_};
  }
  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& /*ticket*/, std::uint32_t /*depth*/,
                                          Deadline /*deadline*/) noexcept override {
    return Error{Code::kUnsupported, "a lane over shm"};
  }
  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents, std::vector<UniqueFd> descriptors,
                               Rights rights) noexcept override {
    if (descriptors.empty())
      return Error{Code::kLimitExceeded, "no descriptor for the region came (RLIMIT_NOFILE?)"};
    if (descriptors.size() != 1 || extents.size() != 1)
      return Error{Code::kProtocol, "attach"}.with_subject("shm grant without its descriptor");
    const WireExtent& extent = extents.front();
    if (extent.length_bytes == 0 ||
        extent.remote_address + extent.length_bytes < extent.length_bytes)
      return Error{Code::kProtocol, "attach"}.with_subject("shm grant of no memory");
    const bool writes = (rights & (Rights::kWrite | Rights::kAtomic)) != Rights::kNone;
    const std::size_t size = extent.remote_address + extent.length_bytes;
    auto mapping =
        Mapping::map(descriptors.front().get(), size, writes ? PROT_READ | PROT_WRITE : PROT_READ);
    if (!mapping) return mapping.error();
    const std::span bytes{(*mapping)->address(), (*mapping)->size_bytes()};
    remora::detail::keep_out_of_core_dumps(bytes, core_dump_);
    // A child of this process gets no mapping: when this process has died, no process writes the
    // region, and the server may report the fence as complete.
    if (::madvise(bytes.data(), bytes.size(), MADV_DONTFORK) != 0)
      return Error{Code::kSystem, "madvise(MADV_DONTFORK)"}.with_errno(errno);
    (*mapping)->populate(populate_, writes);
    extents.front().remote_address += reinterpret_cast<std::uint64_t>((*mapping)->address());
    return AttachedGrant{.extents = std::move(extents), .hold = std::move(*mapping)};
  }
  void shutdown() noexcept override { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  UniqueFd socket_;
  std::shared_ptr<Mapping> status_page_;
  std::string device_;
  bool core_dump_;
  Populate populate_;
};

Result<UniqueFd> connect_socket(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{Code::kInvalidArgument, "connect over shm"}.with_subject(path).with_limit(
        path.size(), sizeof address.sun_path - 1);
  path.copy(address.sun_path, path.size());
  // Non-blocking: a stopped server with a full backlog would block a blocking connect without end.
  UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket)
    return Error{Code::kSystem, "socket"}.with_errno(errno).with_reason(Reason::kLocalShortage);
  int failed = 0;
  while (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    failed = errno;
    if (failed != EAGAIN && failed != EINTR) break;
    if (Clock::now() >= deadline)
      return Error{Code::kTimedOut, "connect over shm"}.with_subject(path).with_reason(
          Reason::kSilent);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    failed = 0;
  }
  if (failed == 0) return socket;
  const Code code = failed == ENOENT || failed == ECONNREFUSED ? Code::kConnectionRefused
                    : failed == EACCES                         ? Code::kPermissionDenied
                                                               : Code::kSystem;
  return Error{code, "connect over shm"}.with_subject(path).with_errno(failed);
}

/// Whether this process trusts a server of that user: its own user, or root. Root trusts a server
/// of any user, in a folder of that user, where a server of another user would not listen.
bool is_trusted(uid_t server) noexcept {
  if (server == ::geteuid() || server == 0) return true;
  struct stat folder {};
  return ::geteuid() == 0 && ::stat(shm_folder().path.c_str(), &folder) == 0 &&
         folder.st_uid == server;
}

/// Waits for the preface, which brings the status page.
Result<std::shared_ptr<Mapping>> await_preface(int socket, const std::string& path,
                                               Deadline deadline) {
  while (true) {
    auto message = receive_message(socket);
    if (!message) return message.error().with_subject(path);
    if (message->has_value()) {
      const ControlMessage& preface = **message;
      const ShmPreface expected;
      if (preface.bytes.size() != sizeof expected || preface.descriptors.size() > 1 ||
          std::memcmp(preface.bytes.data(), &expected, sizeof expected) != 0)
        return Error{Code::kProtocol, "shm preface"}.with_subject(path);
      if (preface.descriptors.empty())
        return Error{Code::kLimitExceeded, "no descriptor came with the preface (RLIMIT_NOFILE?)"}
            .with_subject(path);
      return Mapping::map(preface.descriptors.front().get(), kShmStatusPageBytes, PROT_READ);
    }
    const int left = milliseconds_until(deadline);
    if (left == 0)
      return Error{Code::kTimedOut, "connect over shm"}.with_subject(path).with_reason(
          Reason::kSilent);
    pollfd event{.fd = socket, .events = POLLIN, .revents = 0};
    ::poll(&event, 1, left);
  }
}

}  // namespace

bool shm_reaches(std::string_view host, Deadline deadline) {
  const auto addresses = addresses_of(host, deadline);
  return addresses && is_this_host(*addresses);
}

Result<std::unique_ptr<ClientEndpoint>> connect_shm(const Uri& uri, Deadline deadline,
                                                    const ConnectOptions& options) {
  const std::string path = shm_socket_path(uri.port);
  const auto addresses = addresses_of(uri.host, deadline);
  if (!addresses) return addresses.error();
  if (!is_this_host(*addresses))
    return Error{Code::kUnreachable, "find the server over shm"}.with_subject(
        uri.host + " is another host, not that of " + path);
  auto socket = connect_socket(path, deadline);
  if (!socket) return socket.error();
  auto peer = peer_credentials(socket->get());
  if (!peer) return peer.error();
  if (!is_trusted(peer->uid))
    return Error{Code::kPermissionDenied, "connect over shm"}.with_subject(path).with_reason(
        Reason::kOtherUser);
  auto status_page = await_preface(socket->get(), path, deadline);
  if (!status_page) return status_page.error();
  ShmIdentity told;
  std::memcpy(&told, (*status_page)->address() + offsetof(ShmStatusPage, identity), sizeof told);
  if (auto status = check_identity(told, uri, *addresses, path); !status) return status.error();
  return std::unique_ptr<ClientEndpoint>{
      std::make_unique<ShmClientEndpoint>(std::move(*socket), std::move(*status_page), options)};
}

}  // namespace remora::transport
