#pragma once

/// The files of the page at `/` (metrics/page), which are part of the program, so that it needs
/// neither a folder nor a network.

#include <span>
#include <string_view>

namespace remora::metrics {

struct PageFile {
  std::string_view path;          ///< of the request: "/", "/page/dashboard.js"
  std::string_view content_type;  ///< ends with a zero byte
  std::string_view bytes;
};

/// All files; they live as long as the program.
[[nodiscard]] std::span<const PageFile> page_files();

}  // namespace remora::metrics
