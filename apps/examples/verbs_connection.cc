// verbs_connection serve ADDRESS [PORT] | write ADDRESS PORT TEXT: the connection manager, driven
// by events. The server tells each client where its memory is; the client writes there.
#include <array>
#include <iostream>
#include <poll.h>
#include <string>

#include <remora/verbs/verbs.h>

namespace verbs = remora::verbs;
using remora::Exception;
using verbs::Access;

namespace {

struct Side {
  verbs::CompletionQueue queue;
  verbs::MemoryRegion memory;

  static Side on(const verbs::Device& device) {
    const auto domain = device.allocate_domain().value();
    return {device.create_completion_queue({.depth = 64, .events = true}).value(),
            verbs::MemoryRegion::allocate(domain, 4096, Access::kLocalWrite | Access::kRemoteWrite)
                .value()};
  }
  [[nodiscard]] verbs::QueuePairBuilder<verbs::Rc> builder() const {
    verbs::QueuePairBuilder<verbs::Rc> builder{memory.domain(), queue, queue};
    return builder.timeout(18);
  }
};

verbs::Deadline soon() { return verbs::deadline_in(std::chrono::seconds{20}); }

void wait_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  ::poll(&entry, 1, 1000);
}

int serve(const verbs::Address& address) {
  auto listener = verbs::ConnectionListener::bind(address).value();
  std::cout << "port " << listener.local_address().port() << std::endl;
  auto request = listener.wait_request(soon()).value();
  const Side side = Side::on(request.device());
  request.create_queue_pair(side.builder()).value();
  const auto where = side.memory.remote().to_wire();
  auto connection = std::move(request).accept(soon(), {.private_data = where}).value();
  std::cout << "connected from " << connection.peer_address() << std::endl;
  while (!connection.failure()) {
    if (const auto event = connection.next_event().value())
      std::cout << *event << std::endl;
    else
      wait_readable(connection.event_fd());
  }
  std::cout << "it wrote: " << reinterpret_cast<const char*>(side.memory.bytes().data())
            << std::endl;
  return 0;
}

int write(const verbs::Address& address, const std::string& text) {
  // Each step on a descriptor of an event loop; here the loop has one.
  auto resolver = verbs::Resolver::start(address, soon()).value();
  std::optional<verbs::Connector> connector;
  while (!(connector = resolver.advance().value())) wait_readable(resolver.event_fd());
  const Side side = Side::on(connector->device());
  connector->create_queue_pair(side.builder()).value();
  auto connection = connector->start_connect().value();
  std::optional<verbs::ConnectionEvent> event;
  while (!(event = connection.next_event().value())) wait_readable(connection.event_fd());
  if (!connection.established()) throw Exception{event->error(address)};

  const auto remote = verbs::RemoteSlice::from_wire(
                          event->private_data.bytes().first(verbs::RemoteSlice::kWireBytes))
                          .value();
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(side.memory.bytes().data()));
  auto batch = connection.queue_pair().start();
  batch.write(1, side.memory.slice(0, text.size() + 1), remote.slice(0, text.size() + 1));
  batch.post().value();
  std::array<verbs::Completion, 4> storage;
  for (const auto& done : side.queue.wait(storage, soon()).value()) std::cout << done << '\n';
  connection.disconnect().value();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  try {
    const auto port = static_cast<std::uint16_t>(argc > 3 ? std::stoi(argv[3]) : 0);
    if (mode == "serve") return serve(verbs::Address::parse(argv[2], port).value());
    if (mode == "write" && argc > 4) {
      const std::string text = argv[4];
      return write(verbs::Address::parse(argv[2], port).value(), text.substr(0, 4000));
    }
  } catch (const std::exception& failed) {
    std::cerr << failed.what() << '\n';
    return 1;
  }
  std::cerr << "usage: verbs_connection serve ADDRESS [PORT] | write ADDRESS PORT TEXT\n";
  return 2;
}
