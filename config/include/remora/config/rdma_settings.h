#pragma once

/// Settings of the fabric for connections over rdma: for servers (`rdma` of the YAML file), for
/// clients (`EngineOptions::rdma`) and in URIs, by the same names and with the same ranges.
///
/// The connection manager, and so the host and its fabric, chooses values that are not set.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::config {

/// Each side sets its own half of a connection; `mtu` must fit the other side's. Over iWARP only a
/// client's `traffic_class` has an effect.
struct RdmaSettings {
  /// 0 to 255: DSCP in the upper six bits, ECN in the lower two. 106 is DSCP 26. A client's value
  /// applies to both directions, unless the server sets its own. Default: the host's
  /// `default_roce_tos`.
  std::optional<std::uint8_t> traffic_class{};
  /// 0 to 15; on RoCE the priority, 0 to 7. Default: the value that the host derives from the
  /// traffic class.
  std::optional<std::uint8_t> service_level{};
  /// 1 to 0xffff: partition key. The device's port must have it. Default: that of the interface.
  std::optional<std::uint16_t> pkey{};
  /// 0 to 255: row of the port's GID table to send from. Default: that of the bound address.
  std::optional<std::uint8_t> gid_index{};
  /// The most bytes of payload in a packet: 256, 512, 1024, 2048 or 4096. A client requests it; a
  /// server refuses lanes of clients that would send more. Default: the most that the port can
  /// carry.
  std::optional<std::uint16_t> mtu{};
  /// 1 to 31: acknowledgement time-out, 4.096 us * 2^n; the device waits one to four times as long.
  /// Default: 18 (1.07 s), or more if the connection manager requests more.
  std::optional<std::uint8_t> timeout{};
  /// 0 to 7: how often a request without acknowledgement is sent again. Default: 7.
  std::optional<std::uint8_t> retry_count{};
  /// 0 to 7: how often a message for which the peer has no receive is sent again; 7: without end,
  /// that is, until the deadline of the operation. Default: 7 on lanes.
  std::optional<std::uint8_t> rnr_retry{};

  friend bool operator==(const RdmaSettings&, const RdmaSettings&) = default;
};

/// `settings`, with values of `base` for those that are not set.
[[nodiscard]] RdmaSettings with_defaults(RdmaSettings settings, const RdmaSettings& base) noexcept;

/// Whether a setting has this name: "traffic_class", "mtu", ...
[[nodiscard]] bool is_rdma_setting(std::string_view name) noexcept;
/// Sets the setting of that name. Numbers are decimal, `pkey` also hexadecimal after "0x". Errors:
/// kNotFound (no such name); kInvalidArgument (the value), with both as subject.
Status set_rdma_setting(RdmaSettings& settings, std::string_view name, std::string_view value);
/// Errors: kInvalidArgument, with the first setting that is out of range as subject.
Status check(const RdmaSettings& settings);

/// "traffic_class=106, mtu=1024": the settings that are set, in the order of the struct; empty:
/// none.
[[nodiscard]] std::string to_string(const RdmaSettings& settings, std::string_view between = ", ");

}  // namespace remora::config
