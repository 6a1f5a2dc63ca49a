#pragma once

/// A client below the client library: it speaks the control protocol itself and posts the work
/// requests it is told to, checked by nobody but the server: its NIC, or its process.

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

/// One session over rdma or tcp with one lane. All functions throw Exception where the protocol
/// fails; the fate of work requests is returned.
class RawSession {
 public:
  /// Whether it says that it can use a key for each lane.
  enum class LaneKeys : std::uint8_t {
    kNever,
    /// But not where the servers under test use windows that nobody has checked: whoever looks for
    /// what is refused would find those windows' holes.
    kWhereChecked,
    kAlways
  };
  /// `before`: comes back when it is lost; with a session's id, to go on with that one, without any
  /// of its grants.
  explicit RawSession(const ServerAddress& server, TransportKind transport = TransportKind::kRdma,
                      const transport::LaneTicket* before = nullptr,
                      LaneKeys lane_keys = LaneKeys::kWhereChecked);
  ~RawSession();
  RawSession(const RawSession&) = delete;
  RawSession& operator=(const RawSession&) = delete;

  /// A grant as it came over the wire: where each extent is and with which key.
  struct Grant {
    std::uint64_t id = 0;
    std::vector<transport::WireExtent> extents;
    transport::LaneKeys lane_keys{};
  };
  Grant open(const std::string& region, Rights rights);
  /// Takes all grants of the region back, and opens it. Silent until that is done.
  Grant fence(const std::string& region, Rights rights);
  /// The same grant as the server knows it now, with the keys of lanes that have come meanwhile.
  Grant ask_again(const Grant& grant);
  /// The server has said that there is a key for each lane.
  [[nodiscard]] bool has_lane_keys() const noexcept { return has_lane_keys_; }
  void close(const Grant& grant);

  /// Posts one request with `local()` as its buffer and waits for its end.
  CompletionStatus run(transport::Opcode opcode, std::uint64_t remote_address,
                       std::uint32_t remote_key, std::uint32_t length_bytes) {
    return run_on(*lane_, opcode, remote_address, remote_key, length_bytes);
  }
  /// On another lane of this session.
  CompletionStatus run_on(transport::Lane& lane, transport::Opcode opcode,
                          std::uint64_t remote_address, std::uint32_t remote_key,
                          std::uint32_t length_bytes);
  /// One more lane.
  [[nodiscard]] std::unique_ptr<transport::Lane> open_lane();
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
  /// What a page of extents says.
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
