/// Embeds a server: offers a region, reads it while clients use it, and is told of their writes.
///
///   embedded_server [PORT]

#include <cstring>
#include <iostream>

#include <remora/remora.h>

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::ByteOffset;

int main(int argc, char** argv) try {
  remora::config::ServerConfig config;  // or config::load_server("remora.yaml")
  config.listen.port = static_cast<std::uint16_t>(argc > 1 ? std::stoi(argv[1]) : 0);  // 0: any
  config.pool.size_bytes = 64_MiB;
  auto server = remora::Server::start(config).value();
  server.create_region({.name = "queue", .size_bytes = 16_MiB, .shm = true}).value();
  auto view = server.view("queue").value();  // the application reads and writes the region itself

  server
      .on_notify("queue",
                 [](const remora::Notification& n) {  // for Region::write_notify
                   std::cout << n.length_bytes << " bytes at " << n.offset.bytes << ", tag "
                             << n.tag << std::endl;
                 })
      .value();

  const char message[] = "hello from the server";
  view.write(ByteOffset{64}, std::as_bytes(std::span{message})).value();
  std::cout << "remora://localhost:" << server.port() << "/queue until a line is read" << std::endl;
  std::cin.get();

  std::uint64_t counter = 0;  // clients fetch_add it
  view.read(ByteOffset{0}, std::as_writable_bytes(std::span{&counter, 1})).value();
  std::cout << "clients counted to " << counter << '\n';
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
