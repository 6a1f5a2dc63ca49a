/// A key-value store as remote memory: memcached or redis in its own process, with a value for each
/// block of the region, and a client with nothing between it and the socket.
///
///   peer_kv --store memcached|redis [--mode polling|blocking] [--region-mib 1024] [--core 1]
///           [--server-core 0] [--value-bytes 4096] [--gets single|multi]
///
/// `depth` requests are sent together and their answers awaited together; polling, the client spins
/// on its socket (the stores themselves know only sleeping). With `multi`, reads are one request
/// with `depth` keys: MGET of redis, get of many keys of memcached.

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "jobs.h"

namespace remora::bench {
namespace {

/// What is said on the wire.
struct Protocol {
  bool redis = false;
  std::size_t value_bytes = 4096;

  void get(std::string& request, std::uint64_t block) const {
    const std::string key = key_of(block);
    if (redis) {
      request += "*2\r\n$3\r\nGET\r\n";
      bulk(request, key);
    } else {
      request += "get " + key + "\r\n";
    }
  }
  /// The beginning of a get of so many keys; multi_key() follows for each, then multi_end().
  void multi_begin(std::string& request, std::size_t keys) const {
    request += redis ? "*" + std::to_string(keys + 1) + "\r\n$4\r\nMGET\r\n" : std::string{"get"};
  }
  void multi_key(std::string& request, std::uint64_t block) const {
    if (redis)
      bulk(request, key_of(block));
    else
      request += " " + key_of(block);
  }
  void multi_end(std::string& request) const {
    if (!redis) request += "\r\n";
  }
  void set(std::string& request, std::uint64_t block, const std::string& value) const {
    const std::string key = key_of(block);
    if (redis) {
      request += "*3\r\n$3\r\nSET\r\n";
      bulk(request, key);
      bulk(request, value);
    } else {
      request += "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n";
      request += value;
      request += "\r\n";
    }
  }
  /// Length of the answer to the get of a value that is there.
  [[nodiscard]] std::size_t get_answer_bytes() const {
    return value_answer_bytes() + (redis ? 0 : kEnd.size());
  }
  /// Length of the answer to a get of so many keys, all of which are there.
  [[nodiscard]] std::size_t multi_answer_bytes(std::size_t keys) const {
    const std::size_t around = redis ? ("*" + std::to_string(keys) + "\r\n").size() : kEnd.size();
    return keys * value_answer_bytes() + around;
  }
  [[nodiscard]] std::string set_answer() const { return redis ? "+OK\r\n" : "STORED\r\n"; }

 private:
  static constexpr std::string_view kEnd = "END\r\n";

  [[nodiscard]] std::size_t value_answer_bytes() const {
    const std::string size = std::to_string(value_bytes) + "\r\n";
    const std::size_t head =
        redis ? ("$" + size).size() : ("VALUE " + key_of(0) + " 0 " + size).size();
    return head + value_bytes + 2;
  }
  /// All keys have one length, so all answers do.
  static std::string key_of(std::uint64_t block) { return "b" + std::to_string(10000000 + block); }
  static void bulk(std::string& request, const std::string& bytes) {
    request += "$" + std::to_string(bytes.size()) + "\r\n" + bytes + "\r\n";
  }
};

/// Null: not (yet) there.
std::optional<int> connect_to(std::uint16_t port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const int on = 1;
    ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return made;
  }
  ::close(made);
  return {};
}

/// A port that was free a moment ago.
std::uint16_t free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  require(::bind(probe, plain, size) == 0 && ::getsockname(probe, plain, &size) == 0, "bind");
  ::close(probe);
  return ntohs(address.sin_port);
}

void serve(bool redis, std::uint16_t port, std::size_t region_bytes, int where) {
  const std::string number = std::to_string(port);
  // Items are larger than their values: a header, a key, the rest of a slab's chunk.
  const std::string mebibytes = std::to_string((region_bytes >> 20U) * 2);
  ServerProcess::tell(where, number);
  ::close(where);
  if (redis) {
    ::execlp("redis-server", "redis-server", "--port", number.c_str(), "--bind", "127.0.0.1",
             "--save", "", "--appendonly", "no", "--loglevel", "warning", "--logfile", "/dev/null",
             nullptr);
  } else {
    ::execlp("memcached", "memcached", "-l", "127.0.0.1", "-p", number.c_str(), "-U", "0", "-t",
             "1", "-m", mebibytes.c_str(), "-u", "nobody", nullptr);
  }
  require(false, redis ? "redis-server" : "memcached");
}

class StoreClient : public Client {
 public:
  StoreClient(const Protocol& protocol, int socket, const Arguments& arguments)
      : protocol_{protocol},
        socket_{socket},
        polling_{arguments.polling()},
        multi_{arguments.text("--gets", "single") == "multi"},
        region_bytes_{arguments.region_bytes()},
        value_(protocol.value_bytes, 'x') {
    const std::uint64_t blocks = region_bytes_ / protocol_.value_bytes;
    for (std::uint64_t block = 0; block < blocks;) {
      request_.clear();
      std::size_t count = 0;
      for (; count < 32 && block < blocks; ++count) protocol_.set(request_, block++, value_);
      send_all();
      take_stored(count);
    }
  }
  ~StoreClient() override { ::close(socket_); }

  bool prepare(const Job& job) override {
    if (job.block_bytes != protocol_.value_bytes || (job.op != Op::kRead && job.op != Op::kWrite))
      return false;
    job_ = job;
    blocks_ = std::make_unique<RandomBlocks>(region_bytes_, protocol_.value_bytes);
    return true;
  }

  std::size_t advance() override {
    request_.clear();
    if (multi_ && job_.op == Op::kRead) return advance_multi();
    for (std::size_t i = 0; i < job_.depth; ++i) {
      const std::uint64_t block = next_block();
      if (job_.op == Op::kRead)
        protocol_.get(request_, block);
      else
        protocol_.set(request_, block, value_);
    }
    send_all();
    if (job_.op == Op::kWrite) {
      take_stored(job_.depth);
    } else {
      take_values(job_.depth * protocol_.get_answer_bytes());
    }
    return job_.depth;
  }

  std::size_t drain() override { return 0; }

 private:
  std::uint64_t next_block() { return blocks_->next() / protocol_.value_bytes; }

  /// One get of many keys.
  std::size_t advance_multi() {
    protocol_.multi_begin(request_, job_.depth);
    for (std::size_t i = 0; i < job_.depth; ++i) protocol_.multi_key(request_, next_block());
    protocol_.multi_end(request_);
    send_all();
    take_values(protocol_.multi_answer_bytes(job_.depth));
    return job_.depth;
  }

  void send_all() {
    for (std::size_t sent = 0; sent < request_.size();) {
      const ssize_t wrote =
          ::send(socket_, request_.data() + sent, request_.size() - sent, MSG_NOSIGNAL);
      require(wrote > 0, "send");
      sent += static_cast<std::size_t>(wrote);
    }
  }

  void take(std::size_t bytes) {
    if (answer_.size() < bytes) answer_.resize(bytes);
    for (filled_ = 0; filled_ < bytes;) {
      const ssize_t got =
          ::recv(socket_, answer_.data() + filled_, bytes - filled_, polling_ ? MSG_DONTWAIT : 0);
      require(got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)), "recv");
      if (got > 0) filled_ += static_cast<std::size_t>(got);
    }
  }

  /// An answer with a value for each key.
  void take_values(std::size_t bytes) {
    take(bytes);
    const std::string_view end = protocol_.redis ? "\r\n" : "END\r\n";
    const std::string_view answer{answer_.data(), filled_};
    if (answer.substr(filled_ - end.size()) != end) give_up("a value is missing");
  }

  void take_stored(std::size_t count) {
    const std::string stored = protocol_.set_answer();
    take(count * stored.size());
    if (std::string_view{answer_.data(), stored.size()} != stored) give_up("a value was refused");
  }

  Protocol protocol_;
  int socket_;
  bool polling_;
  bool multi_;
  std::size_t region_bytes_;
  std::string value_;
  Job job_;
  std::string request_;
  std::string answer_;
  std::size_t filled_ = 0;
  std::unique_ptr<RandomBlocks> blocks_;
};

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace)
  const Arguments arguments{argc, argv};
  const bool redis = arguments.text("--store", "memcached") == "redis";
  const std::size_t region_bytes = arguments.region_bytes();
  const std::uint16_t port = free_port();
  const auto server =
      ServerProcess::start(arguments, [=](int where) { serve(redis, port, region_bytes, where); });
  std::optional<int> socket;
  for (int tries = 0; tries < 500 && !socket; ++tries) {
    ::usleep(10000);
    socket = connect_to(port);
  }
  if (!socket) give_up("the store does not listen");
  const auto value_bytes = static_cast<std::size_t>(arguments.number("--value-bytes", 4096));
  StoreClient client{{redis, value_bytes}, *socket, arguments};
  return answer_jobs(client, nullptr);  // the store sleeps by itself
}
