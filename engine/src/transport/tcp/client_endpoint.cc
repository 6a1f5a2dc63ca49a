/// The client's side of the tcp transport: one connection for control, one for the lane.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/verbs/address.h>

#include "transport/connect.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/message_reader.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::transport {

namespace tcp {
namespace {

/// Connects, introduces the connection, and waits for the server's welcome.
Result<UniqueFd> introduce(const verbs::Address& server, const Introduction& introduction,
                           Deadline deadline) noexcept {
  auto socket = connect_socket(server, deadline);
  if (!socket) return socket;
  set_abortive_close(socket->get(), true);
  std::array<std::byte, Welcome::kWireBytes> answer{};
  const std::span whole{answer};
  Status status = send_all(socket->get(), introduction.to_wire(), deadline);
  if (status) status = receive_all(socket->get(), whole.first(kMagicBytes), deadline);
  // Another server may send only its first message and then wait for an answer.
  if (status && !begins_as_ours(whole))
    return Error{Code::kProtocol, "connect over tcp"}
        .with_subject(server.to_string())
        .with_reason(is_http_answer(whole) ? Reason::kHttp : Reason::kNotRemora);
  if (status) status = receive_all(socket->get(), whole.subspan(kMagicBytes), deadline);
  if (!status) {
    // The server accepted the connection and closed it: it is no Remora server, or it refuses this
    // client.
    const bool hung_up = status.error().code() == Code::kConnectionLost;
    const bool silent = status.error().code() == Code::kTimedOut;
    return Error{hung_up ? Code::kConnectionRefused : status.error().code(), "connect over tcp"}
        .with_subject(server.to_string())
        .with_errno(status.error().system_errno())
        .with_reason(silent ? Reason::kSilent : Reason::kNone);
  }
  const auto welcome = Welcome::from_wire(answer);
  if (!welcome || welcome->purpose != introduction.purpose ||
      welcome->payload_crc != introduction.payload_crc)
    return Error{Code::kProtocol, "connect over tcp"}
        .with_subject(server.to_string())
        .with_reason(Reason::kNotRemora);
  return socket;
}

class TcpClientEndpoint final : public ClientEndpoint {
 public:
  TcpClientEndpoint(UniqueFd socket, verbs::Address server, bool payload_crc)
      : socket_{std::move(socket)}, server_{server}, payload_crc_{payload_crc} {}
  /// The last message, usually a goodbye, is still sent; then the port stays in use for a while.
  ~TcpClientEndpoint() override {
    if (!all_acknowledged(socket_.get())) set_abortive_close(socket_.get(), false);
  }
  TcpClientEndpoint(const TcpClientEndpoint&) = delete;
  TcpClientEndpoint& operator=(const TcpClientEndpoint&) = delete;

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  Status send(ControlMessage message, Deadline deadline) noexcept override {
    if (left_.load(std::memory_order_acquire)) return connection_error("send", EPIPE);
    return send_message(socket_.get(), message.bytes, deadline);
  }
  [[nodiscard]] int event_fd() const noexcept override { return socket_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    auto message = reader_.receive(socket_.get());
    if (!message && left_.load(std::memory_order_acquire)) abort_connection(socket_.get());
    return message;
  }
  void flush(Deadline deadline) noexcept override {
    // The host of a stopped server acknowledges, but late (delayed by 40 ms).
    constexpr std::chrono::milliseconds kMaxWait{20};
    constexpr std::chrono::microseconds kPause{50};
    const Deadline until = std::min(deadline, Clock::now() + kMaxWait);
    while (!all_acknowledged(socket_.get()) && Clock::now() < until)
      std::this_thread::sleep_for(kPause);
  }
  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                          Deadline deadline) noexcept override {
    auto socket = introduce(
        server_, {.purpose = Purpose::kLane, .payload_crc = payload_crc_, .ticket = ticket},
        deadline);
    if (!socket) return socket.error();
    return TcpLane::create(std::move(*socket), depth, payload_crc_);
  }
  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                               std::vector<UniqueFd> /*descriptors*/,
                               Rights /*rights*/) noexcept override {
    return AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  /// Messages that the server has sent are still read; after them receive(), or the destructor,
  /// ends the connection.
  void shutdown() noexcept override {
    left_.store(true, std::memory_order_release);
    ::shutdown(socket_.get(), SHUT_RD);
  }

 private:
  UniqueFd socket_;
  std::atomic<bool> left_{false};
  verbs::Address server_;
  bool payload_crc_;
  MessageReader reader_;
  std::string device_;
};

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<ClientEndpoint>> connect_tcp(const Uri& uri, const ConnectOptions& options,
                                                    Deadline deadline) {
  auto addresses = verbs::Address::resolve_all(uri.host, uri.port, deadline);
  if (!addresses) return addresses.error();
  Error last{Code::kUnreachable, "connect over tcp"};
  for (std::size_t i = 0; i < addresses->size(); ++i) {
    // An address that does not answer leaves part of the time to those behind it.
    const auto share = (deadline - Clock::now()) / static_cast<int>(addresses->size() - i);
    const verbs::Address& address = (*addresses)[i];
    auto socket = tcp::introduce(address, {}, Clock::now() + share);
    if (socket)
      return std::unique_ptr<ClientEndpoint>{std::make_unique<tcp::TcpClientEndpoint>(
          std::move(*socket), address, options.payload_crc)};
    last = socket.error();
  }
  return last;
}

}  // namespace remora::transport
