#pragma once

/// An etcd that the test starts: alone, or one of several.

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace remora::volume::test {

/// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Runs a program to its end; its exit status.
int run(const std::vector<std::string>& command);
/// A port of 127.0.0.1 that was free.
[[nodiscard]] std::uint16_t free_port();
/// Whether etcd is installed. Where tests must run (REMORA_REQUIRE_ETCD=1), a missing one fails.
[[nodiscard]] bool has_etcd();

class EtcdProcess {
 public:
  /// `more`: further options, as for TLS; then `scheme` is "https".
  explicit EtcdProcess(std::vector<std::string> more = {}, std::string scheme = "http");
  /// The member `name` of `cluster`, which has the form of --initial-cluster.
  EtcdProcess(std::string name, std::string cluster, std::uint16_t peer_port);
  ~EtcdProcess();
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  [[nodiscard]] std::string endpoint() const { return scheme_ + "://" + address(); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Waits until the port is open.
  void start();
  /// SIGKILL, and the end.
  void kill();
  /// SIGSTOP and SIGCONT.
  void pause() const;
  void resume() const;
  /// Runs etcdctl with `arguments`; its exit status.
  [[nodiscard]] int control(std::vector<std::string> arguments) const;
  /// Starts it again, after kill(), with the snapshot that `etcdctl snapshot save` has written.
  void restore(const std::string& snapshot);
  /// Whether it is the leader, as its metrics say.
  [[nodiscard]] bool leads() const;

 private:
  [[nodiscard]] std::string peer() const {
    return "http://127.0.0.1:" + std::to_string(peer_port_);
  }

  const std::vector<std::string> more_;
  const std::string scheme_;
  const std::uint16_t port_;
  const std::uint16_t peer_port_;
  const std::string name_;
  const std::string cluster_;
  TemporaryFolder folder_;
  pid_t process_ = -1;
};

}  // namespace remora::volume::test
