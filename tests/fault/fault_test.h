#pragma once

/// The fixture of fault tests: a server and loads in processes of their own, rounds, a seed, and
/// the line that says what was done.

#include <gtest/gtest.h>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <remora/remora.h>

#include "load_ledger.h"
#include "processes.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/fault_line.h"
#include "support/pattern.h"
#include "support/resources.h"
#include "support/runtime_dir.h"
#include "support/timed.h"
#include "support/transport.h"

namespace remora::fault {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using test::fails_with;
using test::long_rounds;
using test::ok;

/// The folder of control sockets and load pages of this process and its helpers.
test::RuntimeDir& runtime_dir();

/// After each test: every load's report is without violations, and clients and server hold what
/// they held before (I8).
class FaultTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] virtual FaultServerOptions server_options() const { return {}; }

  [[nodiscard]] TransportKind transport() const { return GetParam(); }
  [[nodiscard]] bool over_shm() const { return transport() == TransportKind::kShm; }
  [[nodiscard]] bool over_tcp() const { return transport() == TransportKind::kTcp; }
  [[nodiscard]] bool over_rdma() const { return transport() == TransportKind::kRdma; }

  /// How often: the short or long count; a fifth of it on an emulated device, 2 at least.
  std::uint64_t rounds(std::uint64_t few, std::uint64_t many);
  /// As rounds(), but not less on an emulated device.
  std::uint64_t exactly_rounds(std::uint64_t few, std::uint64_t many);
  test::Random& random() { return random_; }
  /// A pause of `least` to `most`, by the seed.
  void pause_for_a_while(std::chrono::milliseconds least, std::chrono::milliseconds most);

  FaultServer& server() { return *server_; }
  void kill_server();
  /// Another server process at the same address, with new memory.
  void restart_server();
  [[nodiscard]] std::string uri(const std::string& region, std::uint16_t port = 0) const;

  /// A load on that region, under way. `words`: key=value of the helper "load".
  LoadProcess& start_load(const std::string& region, std::vector<std::string> words = {});
  LoadProcess& start_load_by(const std::string& uri, std::vector<std::string> words = {},
                             const std::string& faketime = {});
  /// Ends it, counts what it did and expects that nothing was violated.
  LoadReport finish(LoadProcess& load);
  void count(const LoadReport& report);
  /// One operation of the test's own, which has ended.
  void count_one(const Status& ended, std::chrono::nanoseconds took);

  /// What a load was at when it was killed.
  struct Killed {
    std::map<LoadKind, std::uint64_t> ended{};      ///< operations whose end it was told of
    std::map<LoadKind, std::uint64_t> in_flight{};  ///< those whose end it was not
    std::uint64_t uncertain = 0;  ///< writes and atomics in flight, or told of as indeterminate
    Killed& operator+=(const Killed& other);
  };
  /// What a load that was killed has left in its region, judged by what it was told while it lived:
  /// its page. Counts its operations.
  Killed judge(const Region& region, const std::string& page_path);

  /// The reproducible part of what is random.
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// An engine of one connection, in this process.
  [[nodiscard]] static Engine plain_engine();

  /// Expects that the server holds what it held without clients; within 5 s.
  void expect_server_back();

 private:
  void warm_up();
  void print() const;

  std::uint64_t seed_ = 0;
  test::Random random_{0};
  std::uint64_t rounds_ = 0;
  std::uint64_t loads_ = 0;
  std::optional<FaultServer> server_;
  std::uint16_t port_ = 0;
  bool server_alive_ = false;
  std::list<LoadProcess> load_processes_;
  std::optional<test::Resources> baseline_;
  std::string server_baseline_;  ///< what a server without clients holds, also a new one
  LoadReport total_;
  std::mutex counted_;  ///< by count_one()
};

std::string transport_name(const testing::TestParamInfo<TransportKind>& info);

}  // namespace remora::fault

/// Makes a suite run on each transport that the environment asks for.
#define REMORA_FAULT(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Fault, suite,                                               \
                           ::testing::ValuesIn(remora::test::transports_under_test()), \
                           remora::fault::transport_name)
