#pragma once

/// The syntax of names of hosts and RDMA devices. Names are not looked up.

#include <string>
#include <string_view>
#include <vector>

namespace remora::config {

/// An IPv4 literal, an IPv6 literal (a `%scope` may follow) or a host name (RFC 1123, and `_`).
bool is_host(std::string_view text);

/// Names divided by commas, without the spaces around them.
std::vector<std::string> host_names(std::string_view text);

/// At most 64 host names, as host_names() splits them; each may be `*`.
bool are_host_names(std::string_view text);

/// 1 to 63 of `A-Z a-z 0-9 . _ -`, as the kernel names RDMA devices.
bool is_device_name(std::string_view text);

}  // namespace remora::config
