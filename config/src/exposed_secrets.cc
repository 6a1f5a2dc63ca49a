#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include <remora/config/load.h>

#include "file.h"
#include "keys.h"
#include "text.h"

namespace remora::config {
namespace {

bool has_mode(const std::filesystem::path& path, mode_t mode) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & mode) != 0;
}

// Its mode lets every user read it, and the modes of the folders above let every user reach it.
bool readable_by_all(const std::string& file) {
  std::error_code failed;
  const auto path = std::filesystem::canonical(file, failed);
  if (failed || !has_mode(path, S_IROTH)) return false;
  for (auto folder = path.parent_path();; folder = folder.parent_path()) {
    if (!has_mode(folder, S_IXOTH)) return false;
    if (folder == folder.root_path()) return true;
  }
}

std::string in_the_file(const std::string& key, const std::string& file) {
  std::string text = key;
  text.append(" stands in ").append(printable(file)).append(", which every user may read: ");
  text.append("chmod o-r it, or use ").append(key).append("_file");
  return text;
}

std::string in_its_own_file(const std::string& key, const std::string& file) {
  std::string text = key;
  text.append("_file: every user may read ").append(printable(file)).append(": chmod o-r it");
  return text;
}

struct ExposedSecret {
  std::string text;
  std::string file;
};

std::vector<ExposedSecret> find_exposed(const ServerConfig& config) {
  std::vector<ExposedSecret> found;
  for (const Key& key : keys()) {
    if (!key.secret) continue;
    const Key* const named = find_key(std::string{key.path} + "_file");
    for_each_place(config, key, [&](const std::string& path, At at) {
      // The secret is written in the file itself, and not taken from the environment.
      if (const auto here = config.origins.find(path); here != config.origins.end() &&
                                                       here->second.environment.empty() &&
                                                       readable_by_all(here->second.file))
        found.push_back({in_the_file(path, here->second.file), here->second.file});
      if (named == nullptr) return;
      const auto there = config.origins.find(path + "_file");
      const auto name = named->read(config, at);
      if (there == config.origins.end() || !name) return;
      if (const std::string file = beside(there->second.file, std::get<std::string>(*name));
          readable_by_all(file))
        found.push_back({in_its_own_file(path, file), file});
    });
  }
  return found;
}

}  // namespace

std::vector<std::string> exposed_secrets(const ServerConfig& config) {
  std::vector<std::string> texts;
  for (ExposedSecret& each : find_exposed(config)) texts.push_back(std::move(each.text));
  return texts;
}

std::vector<std::string> exposed_secret_files(const ServerConfig& config) {
  std::vector<std::string> files;
  for (ExposedSecret& each : find_exposed(config)) files.push_back(std::move(each.file));
  return files;
}

}  // namespace remora::config
