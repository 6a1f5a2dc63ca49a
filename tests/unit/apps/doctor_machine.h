#pragma once

/// A machine of a test's own: files below a temporary folder, and answers to system calls.

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "doctor/checks.h"
#include "doctor/machine.h"

namespace remora::apps::doctor {

/// A normal user of a host without limits.
class FakeCalls final : public SystemCalls {
 public:
  uid_t user = 1000;
  std::map<std::string, FileStatus> nodes{};  ///< those that are there
  std::map<std::string, int> open_errors{};
  std::map<std::string, int> connect_errors{};
  std::map<std::uint16_t, int> bind_errors{};
  ResourceLimit memory{};
  ResourceLimit files{};
  int userfaultfd = 0;
  std::map<std::string, std::string> variables{};
  std::optional<std::string> rules{};

  [[nodiscard]] uid_t effective_user() const override { return user; }
  [[nodiscard]] std::optional<FileStatus> status(const std::string& path) const override {
    const auto found = nodes.find(path);
    if (found == nodes.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] int open_error(const std::string& path) const override {
    return number_of(open_errors, path);
  }
  [[nodiscard]] int connect_error(const std::string& path) const override {
    return number_of(connect_errors, path);
  }
  [[nodiscard]] int bind_error(const std::string& /*address*/, std::uint16_t port) const override {
    return number_of(bind_errors, port);
  }
  [[nodiscard]] ResourceLimit locked_memory() const override { return memory; }
  [[nodiscard]] ResourceLimit open_files() const override { return files; }
  [[nodiscard]] int userfaultfd_error() const override { return userfaultfd; }
  [[nodiscard]] std::optional<std::string> environment(const std::string& name) const override {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] std::optional<std::string> firewall_rules() const override { return rules; }

 private:
  template <typename Key>
  static int number_of(const std::map<Key, int>& numbers, const Key& key) {
    const auto found = numbers.find(key);
    return found == numbers.end() ? 0 : found->second;
  }
};

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "remora-doctor.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  /// A file with its folders.
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file, std::ios::binary | std::ios::trunc} << text;
  }
  void link(const std::string& path, const std::string& target) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::create_symlink(target, file);
  }
  void make_folder(const std::string& path) const {
    std::filesystem::create_directories(root_ + path);
  }

  /// rxe0 with one port; its state as the kernel writes it.
  void add_rxe(const std::string& state = "4: ACTIVE\n") const {
    make_folder("/sys/devices/virtual/infiniband/rxe0/ports/1");
    link("/sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
    const std::string port = "/sys/class/infiniband/rxe0/ports/1/";
    put(port + "state", state);
    put(port + "phys_state", "5: LinkUp\n");
    put(port + "link_layer", "Ethernet\n");
    put(port + "rate", "2.5 Gb/sec (1X SDR)\n");
    put("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
  }
  void add_gid(int index, const std::string& gid, const std::string& type,
               const std::string& interface) const {
    const std::string port = "/sys/class/infiniband/rxe0/ports/1/";
    const std::string name = std::to_string(index);
    put(port + "gids/" + name, gid + "\n");
    put(port + "gid_attrs/types/" + name, type + "\n");
    put(port + "gid_attrs/ndevs/" + name, interface + "\n");
  }
  void add_ethernet(const std::string& name) const {
    put("/sys/class/net/" + name + "/type", "1\n");
    put("/sys/class/net/" + name + "/mtu", "1500\n");
  }

  [[nodiscard]] Machine machine() const { return {.files = FileView{root_}, .calls = calls}; }
  [[nodiscard]] std::vector<DeviceView> devices() const { return read_devices(FileView{root_}); }
  /// Of a pool of so many MiB; rdma as said.
  [[nodiscard]] static config::ServerConfig server(
      std::uint64_t mebibytes, config::Availability rdma = config::Availability::kAuto) {
    config::ServerConfig made;
    made.pool.size_bytes = mebibytes << 20U;
    made.transports.rdma = rdma;
    return made;
  }

  FakeCalls calls;
  std::string root_;
};

/// The finding of that id; a failure and an empty one where there is none.
inline Finding finding_of(const Findings& findings, const std::string& id) {
  for (const Finding& finding : findings)
    if (finding.id == id) return finding;
  ADD_FAILURE() << "no finding " << id;
  return {};
}

}  // namespace remora::apps::doctor
