#pragma once

/// Names of servers and regions:
/// `remora://HOST[:7471][/REGION][?transport=rdma|shm|tcp|auto][&crc=payload][&mtu=1024...][&rails=2]`.

#include <cstdint>
#include <string>
#include <string_view>

#include <remora/config/rdma_settings.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

/// A parsed URI. The scheme is case-insensitive. HOST is a name, an IPv4 address or an IPv6 address
/// in brackets, with a zone as in `[fe80::1%25eth0]` (RFC 6874; `[fe80::1%eth0]` is accepted, too);
/// REGION obeys config::is_region_name(). An option may occur once.
struct Uri {
  std::string host{};  ///< without brackets; a zone follows a bare "%": "fe80::1%eth0"
  std::uint16_t port = kDefaultPort;
  std::string region{};  ///< empty: the server itself
  TransportKind transport = TransportKind::kAuto;
  /// `crc=payload`, with tcp only: the bytes of reads and writes are also checked by CRC32C, see
  /// EngineOptions::tcp_payload_crc.
  bool payload_crc = false;
  /// How connections over rdma use the fabric, by the names of config::RdmaSettings:
  /// `traffic_class=106&mtu=1024`. Not with shm and tcp. Overrides EngineOptions::rdma.
  config::RdmaSettings rdma{};
  /// `rails=auto`, `rails=2` or `rails=mlx5_0,mlx5_1`: overrides EngineOptions::rails. Not with shm
  /// and tcp. Empty: no such option.
  std::string rails{};

  /// Errors: kInvalidArgument, kUnsupported for an unknown transport, for a checksum without tcp,
  /// and for settings of rdma and rails with another transport. The operation names the part that
  /// is wrong ("URI port"), the subject is its text, the remedy the allowed values.
  static Result<Uri> parse(std::string_view text);
  /// The URI as text, without the port and the options that have their defaults. parse() of it
  /// gives the same parts.
  [[nodiscard]] std::string text() const;
  /// "host:port", an IPv6 address in brackets.
  [[nodiscard]] std::string server() const;
};

}  // namespace remora
