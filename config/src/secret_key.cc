#include <algorithm>
#include <array>
#include <bitset>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <remora/config/secret_key.h>
#include <remora/config/server_config.h>
#include <remora/standard_descriptors.h>

namespace remora::config {
namespace {

constexpr std::size_t kDigits = 2 * SecretKey::kBytes;
constexpr std::size_t kDifferentBytesMin = 16;
/// Any permission for others, or more than reading for the group (a service that is not the owner).
constexpr mode_t kModeTooOpen = S_IRWXO | S_IWGRP | S_IXGRP;
/// A key and the end of its line.
constexpr std::size_t kKeyFileBytesMax = kDigits + 2;

int digit_of(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Text that is wiped; it has room for one byte more than a file with a key has.
struct KeyText {
  std::array<char, kKeyFileBytesMax + 1> bytes{};
  std::size_t length = 0;
  KeyText() = default;
  KeyText(const KeyText&) = delete;
  KeyText& operator=(const KeyText&) = delete;
  ~KeyText() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

class KeyFile {
 public:
  explicit KeyFile(int fd) noexcept : fd_{remora::detail::above_standard(fd)} {}
  ~KeyFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

Error system_error(Operation operation, const std::string& path, int system_errno) {
  Code code = Code::kSystem;
  if (system_errno == ENOENT || system_errno == ENOTDIR) code = Code::kNotFound;
  if (system_errno == EACCES || system_errno == EPERM) code = Code::kPermissionDenied;
  if (system_errno == EEXIST) code = Code::kAlreadyExists;
  return Error{code, operation}.with_errno(system_errno).with_subject(path);
}

/// Reads to the end of the file, or more than a key has. Returns 0, or errno.
int read_all(int fd, KeyText& text) noexcept {
  while (text.length < text.bytes.size()) {
    const ssize_t count =
        ::read(fd, text.bytes.data() + text.length, text.bytes.size() - text.length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return 0;
    text.length += static_cast<std::size_t>(count);
  }
  return 0;
}

/// Returns 0, or errno.
int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

SecretKey::~SecretKey() { ::explicit_bzero(bytes_.data(), bytes_.size()); }

Result<SecretKey> SecretKey::parse(std::string_view text) {
  const Error wrong{Code::kInvalidArgument, "key: not 64 hexadecimal digits"};
  if (text.size() != kDigits) return wrong;
  SecretKey key;
  std::bitset<256> seen;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return wrong;
    const auto byte = static_cast<std::uint8_t>(high * 16 + low);
    key.bytes_[i] = std::byte{byte};
    seen.set(byte);
  }
  if (seen.count() < kDifferentBytesMin)
    return Error{Code::kInvalidArgument, "key: not a random one (remora key generate makes one)"};
  return key;
}

Result<SecretKey> SecretKey::generate() {
  SecretKey key;
  std::bitset<256> seen;
  // Random bytes that parse() would refuse do not occur in practice; this loop excludes them.
  while (seen.count() < kDifferentBytesMin) {
    if (::getrandom(key.bytes_.data(), key.bytes_.size(), 0) != ssize_t{kBytes})
      return Error{Code::kSystem, "getrandom"}.with_errno(errno);
    seen.reset();
    for (const std::byte byte : key.bytes_) seen.set(std::to_integer<std::uint8_t>(byte));
  }
  return key;
}

std::string SecretKey::to_hex() const {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  text.reserve(kDigits);
  for (const std::byte byte : bytes_) {
    const auto value = std::to_integer<std::uint8_t>(byte);
    text.push_back(kHex[value >> 4U]);
    text.push_back(kHex[value & 15U]);
  }
  return text;
}

bool operator==(const SecretKey& a, const SecretKey& b) noexcept {
  std::byte difference{0};
  for (std::size_t i = 0; i < SecretKey::kBytes; ++i) difference |= a.bytes_[i] ^ b.bytes_[i];
  return difference == std::byte{0};
}

bool is_client_name(std::string_view name) noexcept { return is_region_name(name); }

Result<SecretKey> read_key_file(const std::string& path) {
  const Error wrong = Error{Code::kInvalidArgument, "key file"}.with_subject(path);
  if (path.empty() || path.find('\0') != std::string::npos) return wrong;
  // Non-blocking: opening a pipe without a writer would never return.
  const KeyFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.get() < 0) return system_error("key file", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error("key file", path, errno);
  if (!S_ISREG(status.st_mode))
    return Error{Code::kInvalidArgument, "key file: not a regular file"}.with_subject(path);
  if ((status.st_mode & kModeTooOpen) != 0)
    return Error{Code::kPermissionDenied,
                 "key file that others may read or change (chmod 600 it, or 640 for a group)"}
        .with_subject(path);
  KeyText text;
  if (const int failed = read_all(file.get(), text); failed != 0)
    return system_error("key file", path, failed);
  std::string_view line{text.bytes.data(), text.length};
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  auto key = SecretKey::parse(line);
  if (!key) return key.error().with_subject(path);
  return key;
}

Status write_key_file(const std::string& path, const SecretKey& key) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return Error{Code::kInvalidArgument, "key file"}.with_subject(path);
  const KeyFile file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                            S_IRUSR | S_IWUSR)};
  if (file.get() < 0) return system_error("make the key file", path, errno);
  std::string line = key.to_hex() + "\n";
  int failed = write_all(file.get(), line);
  ::explicit_bzero(line.data(), line.size());
  if (failed == 0 && ::fsync(file.get()) != 0) failed = errno;
  if (failed == 0) return {};
  ::unlink(path.c_str());  // a part of a key is useless
  return system_error("write the key file", path, failed);
}

}  // namespace remora::config
