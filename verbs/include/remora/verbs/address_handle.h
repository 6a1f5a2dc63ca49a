#pragma once

/// Paths and address handles: the destination of a packet.
///
/// `AddressVector` is the path as a value; a connected queue pair has one as an attribute. An
/// `AddressHandle` is a path that the NIC knows, for datagrams. `DatagramPeer` is the destination
/// of a datagram: handle, queue pair number and key.
///
/// Thread safety: an AddressVector is a value; an AddressHandle may be used by posts of any thread,
/// and must outlive them: it is destroyed after the completions of the requests that name it.

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <optional>
#include <ostream>
#include <span>

#include <remora/result.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/endpoint.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/protection_domain.h>

namespace remora::verbs {

/// Bytes before a datagram in its receive: the global route header, valid if
/// `Completion::has_route_header()`.
inline constexpr std::size_t kDatagramHeaderBytes = 40;

/// Global route header: always on Ethernet, between subnets on InfiniBand.
struct GlobalRoute {
  Gid destination{};
  std::uint8_t source_index = 0;  ///< of this end's GID table
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  ///< 20 bits

  friend bool operator==(const GlobalRoute&, const GlobalRoute&) = default;
};

/// A path from a port of this end to a peer. Source: ibv_create_ah(3).
struct AddressVector {
  std::uint8_t port = 1;              ///< of this end
  std::uint16_t lid = 0;              ///< of the peer; 0 on Ethernet
  std::uint8_t service_level = 0;     ///< 0 to 15
  std::uint8_t source_path_bits = 0;  ///< low bits of this end's LID; 0 on Ethernet
  std::uint8_t static_rate = 0;       ///< ibv_rate; 0: the port's
  std::optional<GlobalRoute> route{};

  /// To and from the structure of verbs.
  [[nodiscard]] ibv_ah_attr raw() const noexcept;
  /// From the structure of verbs.
  [[nodiscard]] static AddressVector from(const ibv_ah_attr& raw) noexcept;

  friend bool operator==(const AddressVector&, const AddressVector&) = default;
};
/// "port 1 lid 0 sl 0", and the route if there is one.
std::ostream& operator<<(std::ostream& out, const AddressVector& path);

/// See the top of this file. Move-only. Keeps its domain.
class AddressHandle {
 public:
  /// Makes the path known to the device. Errors: kInvalidArgument (empty domain, no such port);
  /// kUnreachable (the address does not resolve; see diagnose_route); kOutOfMemory; kProvider
  /// (errno kept). Source: ibv_create_ah(3).
  [[nodiscard]] static Result<AddressHandle> create(const ProtectionDomain& domain,
                                                    const AddressVector& path);

  /// The path back to the sender of a received datagram. `header` is the first kDatagramHeaderBytes
  /// bytes of the receive; `port` is the port that has received it. Errors: kInvalidArgument (not a
  /// received datagram, a short header); and those of create. Source: ibv_init_ah_from_wc(3).
  [[nodiscard]] static Result<AddressHandle> reply(const ProtectionDomain& domain,
                                                   const Completion& completion,
                                                   std::span<const std::byte> header,
                                                   std::uint8_t port = 1);

  /// The path from which it was made.
  [[nodiscard]] const AddressVector& path() const noexcept { return path_; }
  /// Borrowed; never destroy it.
  [[nodiscard]] ibv_ah* raw() const noexcept { return handle_.get(); }

 private:
  struct Destroy {  ///< holds the parent, so a handle always goes before its domain
    ProtectionDomain domain;
    void operator()(ibv_ah* handle) const noexcept;
  };
  AddressHandle(ibv_ah* handle, const ProtectionDomain& domain, const AddressVector& path) noexcept
      : handle_{handle, Destroy{domain}}, path_{path} {}
  std::unique_ptr<ibv_ah, Destroy> handle_;
  AddressVector path_;
};
/// Its path.
std::ostream& operator<<(std::ostream& out, const AddressHandle& handle);

/// The peer to which a datagram is sent. Move-only; must outlive the completions of the datagrams
/// sent to it.
class DatagramPeer {
 public:
  /// `qp_number` and `qkey` are those of the peer's queue pair.
  DatagramPeer(AddressHandle handle, std::uint32_t qp_number, std::uint32_t qkey) noexcept
      : handle_{std::move(handle)}, qp_number_{qp_number}, qkey_{qkey} {}

  /// From the endpoint that the peer has sent. `source` has the port of this end and, on Ethernet,
  /// its GID's index; LID and destination are those of `peer`. Errors: as AddressHandle::create.
  [[nodiscard]] static Result<DatagramPeer> create(const ProtectionDomain& domain,
                                                   const DatagramEndpoint& peer,
                                                   const AddressVector& source);

  /// The path to the peer, which this object keeps alive.
  [[nodiscard]] const AddressHandle& handle() const noexcept { return handle_; }
  /// The peer's queue pair; 24 bits.
  [[nodiscard]] std::uint32_t qp_number() const noexcept { return qp_number_; }
  /// The key that the peer's queue pair requires.
  [[nodiscard]] std::uint32_t qkey() const noexcept { return qkey_; }

 private:
  AddressHandle handle_;
  std::uint32_t qp_number_;
  std::uint32_t qkey_;
};
/// "qp 17 qkey 286331153 over port 1 lid 0 ...".
std::ostream& operator<<(std::ostream& out, const DatagramPeer& peer);

}  // namespace remora::verbs
