#pragma once

/// The server's end of a session over shm.

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <utility>

#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/grant.h"
#include "transport/mapping_client.h"
#include "transport/server_endpoint.h"
#include "transport/shm/socket.h"

namespace remora::transport {

/// A control channel; a grant is a descriptor of the region's memory.
class ShmServerEndpoint final : public ServerEndpoint, private MappingClient {
 public:
  /// `process`: a pidfd of the client; empty if the kernel gives none.
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
  /// The socket has room for all answers that a client may wait for: no room means that the client
  /// does not read, which ends its session.
  Status send(ControlMessage message) noexcept override {
    return send_message(socket_.get(), message.bytes, message.descriptors, Clock::now());
  }
  void flush(Deadline /*deadline*/) noexcept override {}  // the socket keeps sent messages
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
    // The client's mappings stay valid: there is nothing to take over.
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

}  // namespace remora::transport
