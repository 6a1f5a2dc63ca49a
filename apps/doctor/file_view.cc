#include "doctor/file_view.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <remora/system_file.h>

namespace remora::apps::doctor {

namespace {

/// modules.dep of a distribution's kernel has about 1 MiB.
constexpr std::size_t kMaxFileBytes = std::size_t{8} << 20U;

}  // namespace

std::optional<std::string> FileView::read(const std::string& path) const {
  std::optional<std::string> text =
      remora::detail::read_file((root_ + path).c_str(), kMaxFileBytes);
  while (text && !text->empty() && text->back() == '\n') text->pop_back();
  return text;
}

std::string FileView::text(const std::string& path) const { return read(path).value_or(""); }

bool FileView::exists(const std::string& path) const {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(root_ + path, error);
  return !error && std::filesystem::exists(status);
}

std::vector<std::string> FileView::list(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry{root_ + path, error};
  for (; !error && entry != std::filesystem::directory_iterator{}; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string FileView::link(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(root_ + path, error);
  return error ? std::string{} : target.string();
}

std::string FileView::link_name(const std::string& path) const {
  return std::filesystem::path{link(path)}.filename().string();
}

}  // namespace remora::apps::doctor
