#pragma once

/// A client below the client library: it speaks the control protocol itself and posts the work
/// requests it is told to, checked by nobody but the server: its NIC, or its process.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/types.h>

#include "control/messages.h"
#include "support/transport.h"
#include "transport/transport.h"

namespace remora::test {

/// One session over rdma or tcp with one lane. All functions throw Exception where the protocol
/// fails; the fate of work requests is returned.
class RawSession {
 public:
  /// `before`: comes back when it is lost; with a session's id, to go on with that one, without any
  /// of its grants.
  explicit RawSession(const ServerAddress& server, TransportKind transport = TransportKind::kRdma,
                      const transport::LaneTicket* before = nullptr);
  ~RawSession();
  RawSession(const RawSession&) = delete;
  RawSession& operator=(const RawSession&) = delete;

  /// A grant as it came over the wire: where each extent is and with which key.
  struct Grant {
    std::uint64_t id = 0;
    std::vector<transport::WireExtent> extents;
  };
  Grant open(const std::string& region, Rights rights);
  void close(const Grant& grant);

  /// Posts one request with `local()` as its buffer and waits for its end.
  CompletionStatus run(transport::Opcode opcode, std::uint64_t remote_address,
                       std::uint32_t remote_key, std::uint32_t length_bytes);
  [[nodiscard]] std::span<std::byte> local() noexcept { return local_; }
  [[nodiscard]] std::uint32_t local_key() const noexcept {
    return registration_ ? registration_->local_key() : 0;
  }

  [[nodiscard]] transport::Lane& lane() noexcept { return *lane_; }
  [[nodiscard]] transport::ClientEndpoint& endpoint() noexcept { return *endpoint_; }
  [[nodiscard]] const transport::LaneTicket& ticket() const noexcept { return ticket_; }
  /// Bytes of the caller's choice on the control channel.
  void send_control(std::vector<std::byte> bytes);
  /// The server has ended the session; waits for it, at most 10 s. `why`: its last word, if it had
  /// one.
  [[nodiscard]] bool ended(control::Event::Ending* why = nullptr);

 private:
  control::Reply call(control::Request request);

  std::vector<std::byte> local_;
  std::unique_ptr<transport::ClientEndpoint> endpoint_;
  std::unique_ptr<transport::Registration> registration_;
  std::unique_ptr<transport::Lane> lane_;
  transport::LaneTicket ticket_;
  std::uint64_t next_id_ = 1;
  std::uint64_t sequence_ = 0;
};

}  // namespace remora::test
