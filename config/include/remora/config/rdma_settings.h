#pragma once

/// How connections over rdma use the fabric: for servers (`rdma` of the YAML file), for clients
/// (`EngineOptions::rdma`) and in URIs, by the same names and with the same ranges.
///
/// What is not set is the choice of the connection manager, and so of the host and its fabric.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::config {

/// Each side sets its own half of a connection; `mtu` has to fit the other side's. Over iWARP,
/// which has none of the others, only a client's `traffic_class`.
struct RdmaSettings {
  /// 0 to 255: DSCP in the upper six bits, ECN in the lower two. 106 is DSCP 26. A client's holds
  /// for both directions, unless the server sets its own. Default: the host's `default_roce_tos`.
  std::optional<std::uint8_t> traffic_class{};
  /// 0 to 15; on RoCE the priority, 0 to 7. Default: what the host derives from the traffic class.
  std::optional<std::uint8_t> service_level{};
  /// 1 to 0xffff: partition key. The device's port must have it. Default: that of the interface.
  std::optional<std::uint16_t> pkey{};
  /// 0 to 255: row of the port's GID table to send from. Default: that of the bound address.
  std::optional<std::uint8_t> gid_index{};
  /// Bytes of payload in a packet at most: 256, 512, 1024, 2048 or 4096. A client asks for it; a
  /// server refuses lanes of clients that would send more. Default: what the port can carry.
  std::optional<std::uint16_t> mtu{};
  /// 1 to 31: acknowledgement time-out, 4.096 us * 2^n; the device waits one to four times as long.
  /// Default: 18 (1.07 s), or more where the connection manager asks for more.
  std::optional<std::uint8_t> timeout{};
  /// 0 to 7: how often a request without acknowledgement is sent again. Default: 7.
  std::optional<std::uint8_t> retry_count{};
  /// 0 to 7: how often a message that the peer has no receive for is sent again; 7: for ever, that
  /// is, until the deadline of the operation. Default: 7 on lanes.
  std::optional<std::uint8_t> rnr_retry{};

  friend bool operator==(const RdmaSettings&, const RdmaSettings&) = default;
};

/// What `settings` leaves open is taken from `base`.
[[nodiscard]] RdmaSettings with_defaults(RdmaSettings settings, const RdmaSettings& base) noexcept;

/// Whether a setting is called so: "traffic_class", "mtu", ...
[[nodiscard]] bool is_rdma_setting(std::string_view name) noexcept;
/// Sets the setting of that name. Numbers are decimal, `pkey` also hexadecimal behind "0x".
/// Errors: kNotFound (no such name); kInvalidArgument (the value), with both as subject.
Status set_rdma_setting(RdmaSettings& settings, std::string_view name, std::string_view value);
/// Errors: kInvalidArgument, with the first setting that is out of range as subject.
Status check(const RdmaSettings& settings);

/// "traffic_class=106, mtu=1024" of what is set, in the order of the struct; empty: nothing is.
[[nodiscard]] std::string to_string(const RdmaSettings& settings, std::string_view between = ", ");

}  // namespace remora::config
