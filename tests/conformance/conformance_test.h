#pragma once

/// The fixture of every conformance test: one server, one engine, one session over the transport
/// that is the test's parameter, and the proof that nothing of it is left behind.

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/remora.h>

#include "client_under_test.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/resources.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "support/timed.h"
#include "support/transport.h"

namespace remora::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

/// Time that an operation may take beyond its deadline: 2 s, which tests/fault hold it to, and what
/// a busy machine may add. What the host stands still is deducted besides: support/timed.h.
inline constexpr std::chrono::seconds kGrace{6};

struct RegionOptions {
  std::uint64_t size_bytes = 256_KiB;
  std::uint64_t block_bytes = 4096;
  Rights rights = Rights::kAll;
  std::string atomic_domain = "auto";
};

/// Runs on the server of REMORA_TEST_SERVER where that is set, else on one in this process.
///
/// A test's regions, queues and slots are its locals: all of them are gone when TearDown() removes
/// the regions that the test made and compares descriptors, threads, mappings and device objects
/// with what there was before.
class ConformanceTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// The server that SetUp() starts.
  [[nodiscard]] virtual ServerOptions server_options() const { return {}; }
  /// What SetUp() changes in that server's configuration. In this process only.
  virtual void configure(config::ServerConfig& /*config*/) const {}
  /// What SetUp() changes in the options of engine().
  virtual void configure_engine(EngineOptions& /*options*/) const {}
  /// A process of its own, which the test can kill and pause; server() is not there then.
  [[nodiscard]] virtual bool server_in_other_process() const { return false; }
  /// Skipped where the server under test runs elsewhere.
  [[nodiscard]] virtual bool needs_own_server() const { return server_in_other_process(); }

  [[nodiscard]] TransportKind transport() const { return GetParam(); }
  [[nodiscard]] bool over_shm() const { return transport() == TransportKind::kShm; }
  [[nodiscard]] bool over_rdma() const { return transport() == TransportKind::kRdma; }
  /// The server's processor takes part in every operation.
  [[nodiscard]] bool over_tcp() const { return transport() == TransportKind::kTcp; }
  /// The server under test runs elsewhere: its pool, limits and status are not ours.
  [[nodiscard]] bool external() const { return external_server().has_value(); }
  [[nodiscard]] std::string uri(std::string_view region = {}) const;
  [[nodiscard]] std::size_t steps(std::size_t count) const { return scaled(count, transport()); }

  Server& server() { return *server_; }
  ServerProcess& process() { return *process_; }
  Engine& engine() { return *engine_; }
  Session& session() { return *session_; }

  /// A name that no other test uses on the same server.
  std::string unique_name();
  [[nodiscard]] RegionSpec spec(std::string name, const RegionOptions& options = {}) const;
  /// Made by the session, removed by TearDown().
  RegionInfo create(const RegionOptions& options = {});
  Region open(const std::string& name, Rights rights = Rights::kAll);
  Region make_region(const RegionOptions& options = {});
  /// Forgets a region that the test has removed itself.
  void forget(const std::string& name);
  [[nodiscard]] const ServerAddress& address() const { return address_; }
  /// SIGKILL to the server process: no clean-up, so its socket may stay.
  void kill_server();
  /// Another server process at the same address, after kill_server().
  void restart_server();

  /// Ends session and engine; the regions that the test made stay.
  void end_session();
  /// Ends session and engine; stops the server, if it is ours.
  void end_server();

 private:
  void connect();

  void check_idle();

  std::optional<Server> server_;
  std::optional<ServerProcess> process_;
  bool killed_ = false;
  std::optional<Engine> engine_;
  std::optional<Session> session_;
  std::vector<std::string> created_;
  std::optional<Resources> baseline_;
  ServerAddress address_;
  int names_ = 0;
};

/// `remora://host:port[/region]?transport=…`
std::string make_uri(const ServerAddress& address, TransportKind transport,
                     std::string_view region = {});

/// The folder of the control sockets of this process and its helpers.
RuntimeDir& runtime_dir();

/// All of a region, in one call.
std::vector<std::byte> read_all(const Region& region);

/// Submits and waits for all; each completion must be ok. Returns the tags, in order of arrival.
std::vector<std::uint64_t> drain(Queue& queue);

/// For an engine that is patient where it connects: a busy emulator takes seconds for it.
EngineOptions patient_options();
Engine open_engine();

/// Name of a parameter: "shm", "tcp", "rdma".
std::string transport_name(const ::testing::TestParamInfo<TransportKind>& info);

}  // namespace remora::test

/// Makes a suite run on each transport that the environment asks for.
#define REMORA_CONFORMANCE(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Conformance, suite,                                         \
                           ::testing::ValuesIn(remora::test::transports_under_test()), \
                           remora::test::transport_name)
