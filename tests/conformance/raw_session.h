#pragma once

/// A client without the client library: it speaks the control protocol itself, and posts the work
/// requests of the test as they are. Only the server's NIC or its process checks them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/types.h>

#include "protocol/messages.h"
#include "support/transport.h"
#include "transport/client_endpoint.h"
#include "transport/memory_domain.h"

namespace remora::test {

/// One session over rdma or tcp with one lane. All functions throw Exception when the protocol
/// fails, and return the status of work requests.
class RawSession {
 public:
  /// Whether the Hello says that the client can use a key for each lane.
  enum class LaneKeys : std::uint8_t {
    kNever,
    /// Unless the servers under test use windows without checks of the device: tests of refusals
    /// would then find the faults of the device.
    kWhereChecked,
    kAlways
  };
  /// `before`: if not null, the client may resume the session when it is lost. If it has the id of
  /// a session, this one resumes that session, and claims none of its grants.
  explicit RawSession(const ServerAddress& server, TransportKind transport = TransportKind::kRdma,
                      const transport::LaneTicket* before = nullptr,
                      LaneKeys lane_keys = LaneKeys::kWhereChecked);
  ~RawSession();
  RawSession(const RawSession&) = delete;
  RawSession& operator=(const RawSession&) = delete;

  /// A grant as it came over the wire: the address and the key of each extent.
  struct Grant {
    std::uint64_t id = 0;
    std::vector<transport::WireExtent> extents;
    transport::LaneKeys lane_keys{};
  };
  Grant open(const std::string& region, Rights rights);
  /// Fences the region, and returns the new grant. Sends nothing else until the server replies.
  Grant fence(const std::string& region, Rights rights);
  /// The same grant as the server knows it now, with the keys of lanes that were opened since.
  Grant ask_again(const Grant& grant);
  /// Whether the server has announced a key for each lane.
  [[nodiscard]] bool has_lane_keys() const noexcept { return has_lane_keys_; }
  void close(const Grant& grant);

  /// Posts one request with `local()` as its buffer and waits for its end.
  CompletionStatus run(transport::Opcode opcode, std::uint64_t remote_address,
                       std::uint32_t remote_key, std::uint32_t length_bytes) {
    return run_on(*lane_, opcode, remote_address, remote_key, length_bytes);
  }
  /// The same on another lane of this session.
  CompletionStatus run_on(transport::Lane& lane, transport::Opcode opcode,
                          std::uint64_t remote_address, std::uint32_t remote_key,
                          std::uint32_t length_bytes);
  /// Opens one more lane.
  [[nodiscard]] std::unique_ptr<transport::Lane> open_lane();
  [[nodiscard]] std::span<std::byte> local() noexcept { return local_; }
  [[nodiscard]] std::uint32_t local_key() const noexcept {
    return registration_ ? registration_->local_key() : 0;
  }

  [[nodiscard]] transport::Lane& lane() noexcept { return *lane_; }
  [[nodiscard]] transport::ClientEndpoint& endpoint() noexcept { return *endpoint_; }
  [[nodiscard]] const transport::LaneTicket& ticket() const noexcept { return ticket_; }
  /// Sends bytes of the caller's choice on the control channel.
  void send_control(std::vector<std::byte> bytes);
  /// Waits until the server ends the session, at most 10 s. `why`: gets the reason, if the server
  /// sends one.
  [[nodiscard]] bool ended(control::Event::Ending* why = nullptr);

 private:
  control::Reply call(control::Request request);
  /// Adds the extents of a page to `grant`.
  static void read(const google::protobuf::RepeatedPtrField<control::Extent>& page, Grant& grant);

  std::vector<std::byte> local_;
  std::unique_ptr<transport::ClientEndpoint> endpoint_;
  std::unique_ptr<transport::Registration> registration_;
  std::unique_ptr<transport::Lane> lane_;
  transport::LaneTicket ticket_;
  bool has_lane_keys_ = false;
  std::uint64_t next_id_ = 1;
  std::uint64_t sequence_ = 0;
};

}  // namespace remora::test
