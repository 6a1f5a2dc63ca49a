#include "support/resources.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <system_error>
#include <thread>

namespace remora::test {
namespace {

namespace fs = std::filesystem;
using Counts = std::map<std::string, std::int64_t>;

/// "socket:[4711]" -> "socket:[]", so that kinds are counted and not numbers.
std::string kind_of(const std::string& link) {
  std::string kind;
  for (const char c : link)
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) kind.push_back(c);
  return kind;
}

void count_descriptors(Counts& counts) {
  std::error_code failed;
  for (fs::directory_iterator it{"/proc/self/fd", failed}, end; !failed && it != end;
       it.increment(failed)) {
    std::error_code gone;
    const fs::path link = fs::read_symlink(it->path(), gone);
    // The listing's own descriptor.
    if (gone || link.string().find("/proc/") == 0) continue;
    ++counts["descriptor " + kind_of(link.string())];
  }
}

void count_threads(Counts& counts) {
  std::error_code failed;
  counts["threads"] = std::distance(fs::directory_iterator{"/proc/self/task", failed}, {});
}

void count_mappings(Counts& counts) {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:") != std::string::npos) ++counts["mapped memfds"];
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.find("VmPin:") == 0) counts["pinned KiB"] = std::atoll(line.c_str() + 6);
}

void count_shared_memory(Counts& counts) {
  std::error_code failed;
  for (fs::directory_iterator it{"/dev/shm", failed}, end; !failed && it != end;
       it.increment(failed))
    if (it->path().filename().string().find("remora") != std::string::npos)
      ++counts["files in /dev/shm"];
}

void count_device_objects(Counts& counts) {
  std::error_code failed;
  if (!fs::exists("/sys/class/infiniband", failed)) return;
  const std::unique_ptr<FILE, int (*)(FILE*)> tool{
      ::popen("PATH=$PATH:/usr/sbin:/sbin:/bin rdma -j resource show 2>/dev/null", "re"),
      &::pclose};
  if (!tool) return;
  std::string text;
  for (int c = std::fgetc(tool.get()); c != EOF; c = std::fgetc(tool.get()))
    text.push_back(static_cast<char>(c));
  static const std::regex kCount{"\"(qp|cq|mr|pd|cm_id|ctx|srq)\"\\s*:\\s*(\\d+)"};
  for (std::sregex_iterator it{text.begin(), text.end(), kCount}, end; it != end; ++it)
    counts["device " + (*it)[1].str()] += std::atoll((*it)[2].str().c_str());
}

}  // namespace

Resources Resources::now() {
  Resources found;
  count_descriptors(found.counts_);
  count_threads(found.counts_);
  count_mappings(found.counts_);
  count_shared_memory(found.counts_);
  count_device_objects(found.counts_);
  return found;
}

std::string Resources::difference(const Resources& later) const {
  std::set<std::string> names;
  for (const auto& [name, count] : counts_) names.insert(name);
  for (const auto& [name, count] : later.counts_) names.insert(name);
  std::string text;
  for (const std::string& name : names) {
    const auto before = counts_.find(name);
    const auto after = later.counts_.find(name);
    const std::int64_t was = before == counts_.end() ? 0 : before->second;
    const std::int64_t is = after == later.counts_.end() ? 0 : after->second;
    if (was != is)
      text += name + ": " + std::to_string(was) + " before, " + std::to_string(is) + " now\n";
  }
  return text;
}

testing::AssertionResult back_at(const Resources& baseline, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const std::string difference = baseline.difference(Resources::now());
    if (difference.empty()) return testing::AssertionSuccess();
    if (std::chrono::steady_clock::now() >= deadline)
      return testing::AssertionFailure() << "not given back:\n" << difference;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

}  // namespace remora::test
