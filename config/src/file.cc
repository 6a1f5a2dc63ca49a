#include "file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <remora/config/load.h>
#include <remora/standard_descriptors.h>

namespace remora::config {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_{remora::detail::above_standard(fd)} {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string system_message(const char* what, int system_errno) {
  std::array<char, 128> buffer{};
  // The GNU strerror_r: may return a static text, never fails.
  return std::string{what} + ": " + ::strerror_r(system_errno, buffer.data(), buffer.size());
}

}  // namespace

tl::expected<std::string, std::string> read_file(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return tl::make_unexpected(std::string{"not a file name"});
  // Non-blocking: opening a pipe without a writer would never return.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.get() < 0) return tl::make_unexpected(system_message("cannot open the file", errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return tl::make_unexpected(system_message("cannot read the file", errno));
  if (S_ISDIR(status.st_mode))
    return tl::make_unexpected(std::string{"a directory: name the file in it"});
  if (!S_ISREG(status.st_mode)) return tl::make_unexpected(std::string{"not a regular file"});
  std::string text(kFileBytesMax + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return tl::make_unexpected(system_message("cannot read the file", errno));
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

std::string beside(const std::string& file, const std::string& path) {
  const std::size_t slash = file.rfind('/');
  return path.starts_with('/') || slash == std::string::npos ? path
                                                             : file.substr(0, slash + 1) + path;
}

}  // namespace remora::config
