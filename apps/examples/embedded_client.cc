/// Embeds a client: ten thousand reads of a block (4 KiB unless the region says otherwise), 64 in
/// flight.
///
///   embedded_client remora://localhost/cache [METRICS_ADDRESS:PORT]

#include <iostream>
#include <random>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/remora.h>

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::Block;

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: embedded_client URI [METRICS_ADDRESS]\n", 2;
  remora::EngineOptions options;
  options.registry = remora::metrics::Registry::create().value();
  auto engine = remora::Engine::open(options).value();  // no I/O yet
  auto region = engine.open_region(argv[1], remora::Rights::kRead).value();
  auto slots = engine.allocate_slots(64, region.block_bytes()).value();  // registered once
  auto queue = region.queue({.depth = 64, .deadline = 5s}).value();      // one owner

  std::minstd_rand random{1};
  const auto pick = [&] { return random() % region.block_count(); };
  std::uint64_t sum = 0;
  for (std::uint64_t sent = 0, done = 0; done < 10'000;) {
    while (sent < 10'000 && !queue.full()) queue.read(Block{pick()}, slots.take()), ++sent;
    queue.submit().value();                        // one chain, one doorbell
    for (remora::Completion& c : queue.wait(1)) {  // a range; errors are values
      if (!c.ok()) return std::cerr << c.error() << '\n', 1;
      for (std::byte b : c.slot().bytes()) sum += std::to_integer<unsigned>(b);
      ++done;  // the slot goes back when c does
    }
  }
  std::cout << "10000 reads over " << to_string(region.transport()) << ", sum of bytes " << sum
            << '\n';
  if (argc < 3) return 0;
  remora::metrics::HttpOptions http;
  http.address = argv[2];
  auto metrics = remora::metrics::HttpEndpoint::start(options.registry, http).value();
  std::cout << "http://" << metrics.address() << "/metrics until a line is read" << std::endl;
  std::cin.get();
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
