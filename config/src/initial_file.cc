#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <remora/config/initial_file.h>
#include <remora/config/memory_limit.h>
#include <remora/config/server_config.h>
#include <remora/config/units.h>

#include "keys.h"
#include "text.h"

namespace remora::config {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::uint64_t kMinPoolBytes = 64ULL << 20U;
constexpr std::uint64_t kLargeStepBytes = 1ULL << 30U;

std::uint64_t available_memory_bytes() {
  std::ifstream meminfo{"/proc/meminfo"};
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream words{line};
    std::string name;
    std::uint64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") bytes = kibibytes * 1024;
  }
  if (const auto limit = memory_limit()) bytes = std::min(bytes, limit->left_bytes());
  return bytes;
}

// A quarter, in steps that are easy to read.
std::uint64_t initial_pool_bytes(const Machine& machine, const InitialChoices& choices) {
  if (choices.pool_bytes != 0) return choices.pool_bytes;
  const std::uint64_t quarter = machine.available_bytes / 4;
  const std::uint64_t step = quarter >= 4 * kLargeStepBytes ? kLargeStepBytes : kMinPoolBytes;
  return std::max(kMinPoolBytes, quarter / step * step);
}

// Comment lines of at most kWidth characters, each with `margin` in front.
std::string comment_lines(std::string_view text, const std::string& margin) {
  std::string result;
  std::string line;
  std::istringstream words{std::string{text}};
  for (std::string word; words >> word;) {
    if (!line.empty() && margin.size() + 3 + line.size() + word.size() > kWidth) {
      result.append(margin).append("# ").append(line).append("\n");
      line.clear();
    }
    line.append(line.empty() ? "" : " ").append(word);
  }
  if (!line.empty()) result.append(margin).append("# ").append(line).append("\n");
  return result;
}

// Each line after `margin` and a `# `.
std::string as_comment(const std::string& text, const std::string& margin = {}) {
  std::string result;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    result.append(margin).append("# ").append(line).append("\n");
  return result;
}

// A value for a key that must be written and has no default.
std::string placeholder(const Key& key) {
  if (key.type == KeyType::kSize) return "1GiB";
  if (key.type == KeyType::kChoices) return "[" + std::string{key.words[0]} + "]";
  return "NAME";
}

// The lines of a file, from the table of keys and the values that are set.
class InitialFile {
 public:
  explicit InitialFile(std::map<std::string, std::string, std::less<>> values)
      : values_{std::move(values)} {}

  std::string print() const {
    std::string text;
    for (const Key& key : keys()) {
      if (!parent(key.path).empty()) continue;
      text.append("\n").append(comment_lines(explained(key), ""));
      if (key.type != KeyType::kMap && key.type != KeyType::kList) {
        text.append(value_line(key, "", false));
        continue;
      }
      const bool set = any_set(key.path);
      const std::string block = key.type == KeyType::kList
                                    ? list_lines(key, !set)
                                    : std::string{key.path} + ":\n" + members(key.path, "  ", !set);
      text.append(set ? block : as_comment(block));
    }
    return text;
  }

 private:
  [[nodiscard]] bool any_set(std::string_view path) const {
    return std::any_of(values_.begin(), values_.end(), [path](const auto& value) {
      const std::string& name = value.first;
      return name.size() > path.size() && name.starts_with(path) &&
             (name[path.size()] == '.' || name[path.size()] == '[');
    });
  }

  static std::string explained(const Key& key) {
    std::string text{key.help};
    if (key.type == KeyType::kMap || key.type == KeyType::kList) return text;
    const std::string range = key.accepts.empty() ? range_text(key) : std::string{key.accepts};
    return text.append(" Accepted: ").append(range).append(".");
  }

  // `in_comment`: the whole block is a comment, and defaults are written in it as if they were set.
  [[nodiscard]] std::string value_line(const Key& key, const std::string& margin,
                                       bool in_comment) const {
    const std::string name{leaf(key.path)};
    if (const auto set = values_.find(key.path); set != values_.end())
      return margin + name + ": " + set->second + "\n";
    if (key.required) return margin + name + ": " + placeholder(key) + "\n";
    const std::string standard = standard_text(key);
    if (standard.empty()) return margin + "# " + name + ":\n";
    return margin + (in_comment ? "" : "# ") + name + ": " + standard + "\n";
  }

  [[nodiscard]] std::string members(std::string_view path, const std::string& margin,
                                    bool in_comment) const {
    std::string text;
    for (const Key& key : keys()) {
      if (parent(key.path) != path) continue;
      text.append(comment_lines(explained(key), margin));
      // A list within an element is an example of its own.
      if (key.type == KeyType::kList)
        text.append(as_comment(list_lines(key, true), margin));
      else
        text.append(value_line(key, margin, in_comment));
    }
    return text;
  }

  // The list with one element, whose first key follows the dash.
  [[nodiscard]] std::string list_lines(const Key& list, bool in_comment) const {
    const std::string inner = "    ";
    std::string element = members(std::string{list.path} + "[]", inner, in_comment);
    const std::string_view first = children(std::string{list.path} + "[]").front();
    const std::size_t at = element.find(inner + std::string{first} + ":");
    if (at != std::string::npos) element[at + inner.size() - 2] = '-';
    return std::string{leaf(list.path)} + ":\n" + element;
  }

  std::map<std::string, std::string, std::less<>> values_;
};

std::string heading(const Machine& machine) {
  std::string devices;
  for (const std::string& device : machine.rdma_devices)
    devices.append(devices.empty() ? "" : ", ").append(printable(device));
  const std::string huge = machine.free_huge_page_bytes == 0
                               ? "no free huge pages"
                               : format_size(machine.free_huge_page_bytes) + " of free huge pages";
  const std::uint64_t mebibytes = machine.available_bytes >> 20U;
  return comment_lines("The file of remora-server, made by 'remora config init' for " +
                           printable(machine.name.empty() ? "this machine" : machine.name) + ": " +
                           std::to_string(mebibytes) + "MiB of memory available, " + huge + ", " +
                           (devices.empty() ? "no RDMA device" : "RDMA devices: " + devices) + ".",
                       "") +
         comment_lines(
             "A key behind a '#' has its default. 'remora config check FILE' finds every fault.",
             "");
}

}  // namespace

Machine this_machine() {
  Machine machine;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) machine.name = name.data();
  machine.available_bytes = available_memory_bytes();
  machine.free_huge_page_bytes = free_huge_page_bytes();
  std::error_code fault;
  for (std::filesystem::directory_iterator each{"/sys/class/infiniband", fault}, end;
       !fault && each != end; each.increment(fault))
    machine.rdma_devices.push_back(each->path().filename().string());
  std::sort(machine.rdma_devices.begin(), machine.rdma_devices.end());
  return machine;
}

std::string initial_file(const Machine& machine, const InitialChoices& choices) {
  const Key* const address = find_key("listen.address");
  std::map<std::string, std::string, std::less<>> values{
      {"listen.address", yaml_text(*address, Value{choices.listen_address})},
      {"pool.size", format_size(initial_pool_bytes(machine, choices))},
      {"metrics.address", "127.0.0.1:9471"}};
  if (is_loopback(choices.listen_address)) {
    values.emplace("auth", "none");
  } else {
    values.emplace("auth", "keys");
    values.emplace("clients[].name", "admin");
    values.emplace("clients[].key_file", kInitialKeyFile);
    values.emplace("clients[].admin", "true");
  }
  return heading(machine) + InitialFile{std::move(values)}.print();
}

}  // namespace remora::config
