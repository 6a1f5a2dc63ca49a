/// What programs that the process starts inherit: nothing of the library's.

#include <arpa/inet.h>
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

std::set<int> open_descriptors() {
  std::set<int> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator it{"/proc/self/fd", failed}, end; !failed && it != end;
       it.increment(failed))
    found.insert(std::stoi(it->path().filename().string()));
  return found;
}

/// Those made since `before` that a program would inherit, each with what it is.
std::string inheritable(const std::set<int>& before) {
  std::string found;
  for (const int fd : open_descriptors()) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (before.count(fd) != 0 || flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
    std::error_code gone;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    found += std::to_string(fd) + " " + std::filesystem::read_symlink(path, gone).string() + "\n";
  }
  return found;
}

/// A request of the metrics endpoint that never ends: its socket stays open on both sides.
class HalfRequest {
 public:
  explicit HalfRequest(std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    sent_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
            ::send(fd_, "GET /met", 8, MSG_NOSIGNAL) == 8;
  }
  HalfRequest(const HalfRequest&) = delete;
  HalfRequest& operator=(const HalfRequest&) = delete;
  ~HalfRequest() { ::close(fd_); }
  [[nodiscard]] bool sent() const noexcept { return sent_; }

 private:
  int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool sent_ = false;
};

class DescriptorsTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
};

TEST_P(DescriptorsTest, EachClosesOnExec) {
  end_server();
  const std::set<int> before = open_descriptors();
  const Server served = Server::start(server_config(transport(), {.all_transports = true})).value();
  const auto registry = metrics::Registry::create().value();
  const auto endpoint = metrics::HttpEndpoint::start(registry, {.address = "127.0.0.1:0"}).value();
  const HalfRequest request{endpoint.port()};
  ASSERT_TRUE(request.sent());
  const std::string where =
      make_uri({listen_address(transport()), served.port()}, transport(), "made");
  const Engine client = open_engine();
  client.connect(where).value().create_region(spec("made", {.size_bytes = 1_MiB})).value();
  const Region region = client.open_region(where, Rights::kAll).value();
  Queue queue = region.queue().value();
  queue.event_fd().value();
  std::vector<std::byte> bytes(256 * 1024);  // registered where the transport needs that
  queue.write(ByteOffset{0}, Source{bytes});
  drain(queue);
  std::atomic<bool> called{false};
  CallbackQueue callbacks = region.callback_queue().value();
  callbacks.read(ByteOffset{0}, Target{bytes}, [&](Completion&) { called = true; }).value();
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  const Region fenced = over_shm() ? region : region.fence().value();
  const Lock lock = Lock::open(fenced, ByteOffset{0}).value();
  lock.acquire(10s).value().release().value();
  EXPECT_GE(open_descriptors().size(), before.size() + 8);
  EXPECT_EQ(inheritable(before), "");
}

REMORA_CONFORMANCE(DescriptorsTest);

}  // namespace
}  // namespace remora::test
