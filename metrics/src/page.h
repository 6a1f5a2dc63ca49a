#pragma once

// The live page: files that the build embeds in the library.

#include <span>
#include <string_view>

namespace remora::metrics {

struct PageFile {
  std::string_view path;          // of the URL
  std::string_view content_type;  // ends with a zero byte
  std::string_view bytes;
};
[[nodiscard]] std::span<const PageFile> page_files();

}  // namespace remora::metrics
