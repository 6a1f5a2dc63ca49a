#pragma once

/// A supervisor's store of descriptors within the test's own process.

#include <fcntl.h>
#include <map>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <remora/engine/descriptor_store.h>

namespace remora::test {

class MemoryStore final : public DescriptorStore {
 public:
  MemoryStore() = default;
  ~MemoryStore() override {
    for (const auto& [name, fd] : held_) ::close(fd);
  }
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  Result<std::vector<StoredDescriptor>> take() override {
    std::vector<StoredDescriptor> taken;
    for (const auto& [name, fd] : held_)
      taken.push_back({.name = name, .fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3)});
    return taken;
  }
  Status store(std::string_view name, int fd) override {
    if (full_) return Error{Code::kLimitExceeded, "store"};
    const auto [at, is_new] = held_.try_emplace(std::string{name}, -1);
    if (!is_new) return Error{Code::kAlreadyExists, "store"}.with_subject(name);
    at->second = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return {};
  }
  void remove(std::string_view name) noexcept override {
    const auto found = held_.find(name);
    if (found == held_.end()) return;
    ::close(found->second);
    held_.erase(found);
  }

  /// From now on store() fails.
  void fill() noexcept { full_ = true; }
  /// -1: there is none of that name.
  [[nodiscard]] int fd(std::string_view name) const {
    const auto found = held_.find(name);
    return found == held_.end() ? -1 : found->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return held_.size(); }

 private:
  std::map<std::string, int, std::less<>> held_;
  bool full_ = false;
};

}  // namespace remora::test
