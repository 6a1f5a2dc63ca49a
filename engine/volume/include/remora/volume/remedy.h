#pragma once

/// Remedies for errors of clusters: their URIs, stores and records.

#include <string_view>

#include <remora/result.h>

namespace remora::volume {

/// What to do about an error whose remedy Error::remedy() does not know; empty: no general remedy
/// is known.
[[nodiscard]] std::string_view remedy(const Error& error) noexcept;

}  // namespace remora::volume
