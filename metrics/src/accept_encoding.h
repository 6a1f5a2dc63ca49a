#pragma once

/// The header Accept-Encoding.

#include <string_view>

namespace remora::metrics {

/// Whether an answer compressed by gzip is acceptable by the value of Accept-Encoding, and
/// preferred to one that is not compressed. A coding whose weight cannot be read is not accepted.
/// Source: RFC 9110, sections 12.4.2 and 12.5.3.
bool accepts_gzip(std::string_view accept_encoding) noexcept;

}  // namespace remora::metrics
