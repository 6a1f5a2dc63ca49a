/// How an application tests what it does when a lane is lost: a log whose appends are there once.
///
///   fault_injection [SEED]
///
/// The server is in this process, too: no NIC, no root, nothing to kill.

#include <array>
#include <bit>
#include <cstdlib>
#include <iostream>

#include <remora/remora.h>
#include <remora/testing/fault_transport.h>

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::ByteOffset;

namespace {

/// The object under test: the word at 0 counts the records, which are one word each, behind it.
class Log {
 public:
  explicit Log(remora::Region region) : region_{std::move(region)} {}
  void append(std::uint64_t record) {
    put(ByteOffset{8 + 8 * size_}, record);
    // There is no other writer: adding is carried out again only where it has not taken effect.
    do {
      const remora::Result<std::uint64_t> added = region_.fetch_add(ByteOffset{0}, 1);
      if (added) break;
      if (added.error().code() != remora::Code::kIndeterminate) added.value();
      ++uncertain_;
      region_.settled(30s).value();  // from now on it has taken effect, or never will
    } while (read(ByteOffset{0}) == size_);
    ++size_;
  }
  [[nodiscard]] std::uint64_t read(ByteOffset at) const {
    std::array<std::byte, 8> bytes{};
    region_.read(at, bytes).value();
    return std::bit_cast<std::uint64_t>(bytes);
  }
  [[nodiscard]] int uncertain() const { return uncertain_; }

 private:
  /// The same bytes to the same place may be written again.
  void put(ByteOffset at, std::uint64_t word) {
    const auto bytes = std::bit_cast<std::array<std::byte, 8>>(word);
    while (true) {
      const remora::Status status = region_.write(at, bytes);
      if (status) return;
      if (status.error().code() != remora::Code::kIndeterminate) status.value();
      ++uncertain_;
      region_.settled(30s).value();  // the old one must not come behind the new
    }
  }
  remora::Region region_;
  std::uint64_t size_ = 0;
  int uncertain_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  constexpr std::uint64_t kAppends = 200;
  remora::config::ServerConfig config;
  config.listen.port = 0;
  config.transports.rdma = remora::config::Availability::kOff;
  config.pool.size_bytes = 16_MiB;
  config.regions.push_back({.name = "log", .size_bytes = 1_MiB});
  const auto server = remora::Server::start(config).value();

  const auto faults = remora::testing::FaultTransport::create(
                          {.seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 7,
                           .rates = {.lose_lane = 0.05, .delay = 0.1, .max_delay = 200us}})
                          .value();
  remora::EngineOptions options;
  options.faults = faults.hook();
  const auto engine = remora::Engine::open(options).value();
  Log log{engine
              .open_region("remora://127.0.0.1:" + std::to_string(server.port()) + "/log",
                           remora::Rights::kAll)
              .value()};
  for (std::uint64_t record = 1; record <= kAppends; ++record) log.append(record * record);
  faults.set_rates({}).value();

  const std::uint64_t records = log.read(ByteOffset{0});
  bool right = records == kAppends;
  for (std::uint64_t i = 1; i <= kAppends; ++i)
    right = right && log.read(ByteOffset{8 * i}) == i * i;
  const remora::testing::FaultCounts counts = faults.counts();
  std::cout << kAppends << " appends, " << records << " records, "
            << (right ? "each once" : "which is wrong") << '\n'
            << counts.lanes_lost << " lanes lost, " << log.uncertain()
            << " operations uncertain, and " << counts.requests_landed << " had landed\n";
  return right && counts.lanes_lost != 0 ? 0 : 1;
} catch (const std::exception& error) {
  return std::cerr << error.what() << '\n', 1;
}
