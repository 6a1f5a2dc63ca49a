#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <remora/standard_descriptors.h>
#include <remora/verbs/port_counters.h>

namespace remora::verbs {
namespace {

constexpr Operation kList = "list the counters of a port";
constexpr Operation kRead = "read the counter of a port";

/// The names in a folder, in any order, without those that begin with a dot.
Result<std::vector<std::string>> names_in(const std::string& folder) {
  struct Close {
    void operator()(DIR* open) const noexcept { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open{::opendir(folder.c_str())};
  if (open == nullptr)
    return Error{errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kSystem, kList}
        .with_errno(errno)
        .with_subject(folder);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (errno != 0) return Error{Code::kSystem, kList}.with_errno(errno).with_subject(folder);
  return names;
}

/// The number in `text`, which contains nothing else.
template <typename Number>
bool parse(std::string_view text, Number& number) noexcept {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

/// Counters of one port by name.
Result<std::map<std::string, std::string>> counters_of(const std::string& port_folder) {
  std::map<std::string, std::string> found;
  for (const char* const kind : {"/hw_counters", "/counters"}) {
    auto names = names_in(port_folder + kind);
    if (!names && names.error().code() == Code::kNotFound) continue;  // the driver has no counters
    if (!names) return names.error();
    for (const std::string& name : *names)
      if (name != "lifespan")
        found.emplace(name, std::string{port_folder}.append(kind).append("/").append(name));
  }
  return found;
}

}  // namespace

Result<std::vector<PortCounter>> port_counters(std::string_view device, std::string_view folder) {
  if (device.empty() || device.front() == '.' || device.find('/') != std::string_view::npos)
    return Error{Code::kInvalidArgument, kList}.with_subject(device);
  const std::string ports_folder = std::string{folder} + "/" + std::string{device} + "/ports";
  auto ports = names_in(ports_folder);
  if (!ports && ports.error().code() == Code::kNotFound)
    return Error{Code::kNotFound, kList}.with_subject(device);
  if (!ports) return ports.error();
  std::vector<std::uint8_t> numbers;
  for (const std::string& name : *ports)
    if (std::uint8_t number = 0; parse(name, number) && number != 0) numbers.push_back(number);
  if (numbers.empty()) return Error{Code::kNotFound, kList}.with_subject(device);
  std::sort(numbers.begin(), numbers.end());
  std::vector<PortCounter> all;
  for (const std::uint8_t number : numbers) {
    auto counters = counters_of(ports_folder + "/" + std::to_string(number));
    if (!counters) return counters.error();
    for (auto& [name, path] : *counters) all.push_back({number, name, std::move(path)});
  }
  return all;
}

Result<std::uint64_t> read_port_counter(const PortCounter& counter) {
  const int file =
      remora::detail::above_standard(::open(counter.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file < 0)
    return Error{errno == ENOENT || errno == ENODEV ? Code::kNotFound : Code::kSystem, kRead}
        .with_errno(errno)
        .with_subject(counter.name);
  std::array<char, 64> text{};
  const ssize_t length = ::read(file, text.data(), text.size());
  const int failed = errno;
  ::close(file);
  if (length < 0) {
    const bool gone = failed == ENODEV || failed == ENOENT;
    const bool never = failed == EINVAL || failed == EOPNOTSUPP;
    return Error{gone    ? Code::kNotFound
                 : never ? Code::kUnsupported
                         : Code::kSystem,
                 kRead}
        .with_errno(failed)
        .with_subject(counter.name);
  }
  std::string_view digits{text.data(), static_cast<std::size_t>(length)};
  if (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
  std::uint64_t value = 0;
  // For example "N/A (no PMA)".
  if (!parse(digits, value)) return Error{Code::kUnsupported, kRead}.with_subject(counter.name);
  return value;
}

}  // namespace remora::verbs
