#include "unit/volume/etcd_process.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace remora::volume::test {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

pid_t spawn(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(null, fd);
  if (::getppid() == parent) ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

int await(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool answers(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  const bool open =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return open;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "remora-volume-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int run(const std::vector<std::string>& command) { return await(spawn(command)); }

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

bool has_etcd() {
  const bool there = !std::string{REMORA_ETCD}.empty();
  if (!there && std::getenv("REMORA_REQUIRE_ETCD") != nullptr)
    ADD_FAILURE() << "etcd is not installed: ci/setup.sh cluster";
  return there;
}

EtcdProcess::EtcdProcess(std::vector<std::string> more, std::string scheme)
    : more_{std::move(more)},
      scheme_{std::move(scheme)},
      port_{free_port()},
      peer_port_{free_port()},
      name_{"one"},
      cluster_{"one=" + peer()} {
  start();
}

EtcdProcess::EtcdProcess(std::string name, std::string cluster, std::uint16_t peer_port)
    : scheme_{"http"},
      port_{free_port()},
      peer_port_{peer_port},
      name_{std::move(name)},
      cluster_{std::move(cluster)} {
  start();
}

EtcdProcess::~EtcdProcess() { kill(); }

void EtcdProcess::start() {
  std::vector<std::string> command{REMORA_ETCD,
                                   "--name=" + name_,
                                   "--data-dir=" + folder_.path() + "/data",
                                   "--listen-client-urls=" + endpoint(),
                                   "--advertise-client-urls=" + endpoint(),
                                   "--listen-peer-urls=" + peer(),
                                   "--initial-advertise-peer-urls=" + peer(),
                                   "--initial-cluster=" + cluster_,
                                   "--log-level=fatal"};
  command.insert(command.end(), more_.begin(), more_.end());
  process_ = spawn(command);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!answers(port_)) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "etcd does not listen";
    ASSERT_EQ(::waitpid(process_, nullptr, WNOHANG), 0) << "etcd has ended";
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

void EtcdProcess::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  await(std::exchange(process_, -1));
}

void EtcdProcess::pause() const {
  ::kill(process_, SIGSTOP);
  // Until all of its threads have stopped, it answers.
  siginfo_t stopped{};
  ::waitid(P_PID, static_cast<id_t>(process_), &stopped, WSTOPPED);
}
void EtcdProcess::resume() const { ::kill(process_, SIGCONT); }

int EtcdProcess::control(std::vector<std::string> arguments) const {
  std::vector<std::string> command{"env", "ETCDCTL_API=3", "etcdctl", "--endpoints=" + endpoint()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command);
}

void EtcdProcess::restore(const std::string& snapshot) {
  const std::string data = folder_.path() + "/data";
  std::filesystem::remove_all(data);
  ASSERT_EQ(run({"env", "ETCDCTL_API=3", "etcdctl", "snapshot", "restore", snapshot,
                 "--name=" + name_, "--data-dir=" + data, "--initial-cluster=" + cluster_,
                 "--initial-advertise-peer-urls=" + peer()}),
            0)
      << "etcdctl does not restore " << snapshot;
  start();
}

bool EtcdProcess::leads() const {
  return run({"sh", "-c",
              "curl -fs --max-time 5 " + endpoint() +
                  "/metrics | grep -qx 'etcd_server_is_leader 1'"}) == 0;
}

}  // namespace remora::volume::test
