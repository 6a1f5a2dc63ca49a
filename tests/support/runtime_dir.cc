#include "support/runtime_dir.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <stdlib.h>
#include <system_error>

namespace remora::test {
namespace {
constexpr const char* kVariable = "REMORA_RUNTIME_DIR";
}

RuntimeDir::RuntimeDir() {
  // /tmp and not TMPDIR: a socket's path has at most 107 bytes.
  std::string path = "/tmp/remora-test-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp in /tmp failed");
  path_ = path;
  if (const char* before = std::getenv(kVariable)) {
    before_ = before;
    had_before_ = true;
  }
  ::setenv(kVariable, path_.c_str(), 1);
}

RuntimeDir::~RuntimeDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (had_before_)
    ::setenv(kVariable, before_.c_str(), 1);
  else
    ::unsetenv(kVariable);
}

std::vector<std::string> RuntimeDir::entries() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{path_})
    names.push_back(entry.path().filename().string());
  return names;
}

void RuntimeDir::clear() const {
  for (const std::string& name : entries()) std::filesystem::remove_all(path_ + "/" + name);
}

}  // namespace remora::test
