/// How a server isolates clients over rdma: the checks of the device's windows, the mechanism that
/// the server chooses, and the limit of its registrations.

#include <chrono>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include <remora/metrics/registry.h>
#include <remora/remora.h>
#include <remora/verbs/verbs.h>

#include "support/eventually.h"
#include "support/expect.h"
#include "support/resources.h"
#include "support/server.h"
#include "support/transport.h"
#include "transport/rdma/client_isolation.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::rdma::Verdict;
using transport::rdma::WindowCheck;
using transport::rdma::WindowFindings;

class MechanismTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
  }
  void start(const config::ServerConfig& config) {
    server_.emplace(Server::start(config).value());
    address_ = {listen_address(GetParam()), server_->port()};
  }
  [[nodiscard]] static config::ServerConfig configuration() {
    config::ServerConfig config = server_config(GetParam(), {.piece_bytes = 1U << 20U});
    // Whatever the environment says.
    config.transports.rdma_protection = config::RdmaProtection::kAuto;
    return config;
  }
  [[nodiscard]] std::string uri(const std::string& region) const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) + "/" + region +
           "?transport=" + std::string{to_string(GetParam())};
  }
  void make(const std::string& name, std::uint64_t size_bytes) {
    RegionSpec spec;
    spec.name = name;
    spec.size_bytes = size_bytes;
    server_->create_region(spec).value();
  }
  /// The status of the server's only device.
  [[nodiscard]] nlohmann::json device() const {
    return nlohmann::json::parse(server_->status_json()).at("devices").at(0);
  }
  [[nodiscard]] double registrations() const {
    const std::string text = server_->registry().text();
    const std::string name = "\nremora_server_registrations ";
    const std::size_t at = text.find(name);
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + name.size()));
  }

  std::optional<Server> server_;
  ServerAddress address_;
};

// Linux 6.1: windows of Soft-RoCE fail two of the four checks.
TEST_P(MechanismTest, SoftRoceFailsTheChecksOfRangeAndInvalidation) {
  const auto devices = verbs::connection_manager_devices().value();
  if (!devices[0].name().starts_with("rxe"))
    GTEST_SKIP() << devices[0].name() << " is not Soft-RoCE: its verdicts are not known";
  const Resources baseline = Resources::settled();
  const std::uint64_t failures = verbs::teardown_failure_count();
  for (int round = 0; round < 3; ++round) {
    const auto began = std::chrono::steady_clock::now();
    const WindowFindings found =
        transport::rdma::probe_windows(devices[0], verbs::deadline_in(std::chrono::seconds{10}));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    RecordProperty("milliseconds", std::to_string(took.count()));
    std::cout << "asked for " << took.count() << " ms: " << found.text() << "\n";
    EXPECT_EQ(found.range.verdict, Verdict::kBroken) << found.text();
    EXPECT_EQ(found.invalidation.verdict, Verdict::kBroken) << found.text();
    EXPECT_EQ(found.rights.verdict, Verdict::kKept) << found.text();
    EXPECT_EQ(found.binding.verdict, Verdict::kKept) << found.text();
  }
  EXPECT_TRUE(back_at(baseline)) << "queue pairs, windows, registrations";
  EXPECT_EQ(verbs::teardown_failure_count(), failures);
}

TEST_P(MechanismTest, ServerSaysWhatItChoseAndWhy) {
  start(configuration());
  const auto protection = device().at("protection");
  bool all_kept = true;
  for (const auto& check : protection.at("checks"))
    all_kept = all_kept && check.at("verdict") == "kept";
  EXPECT_EQ(protection.at("mechanism"), all_kept ? "windows" : "registrations");
  EXPECT_FALSE(protection.at("reason").get<std::string>().empty());
  ASSERT_EQ(protection.at("checks").size(), 4U) << protection;
  if (device().at("name").get<std::string>().starts_with("rxe")) {
    EXPECT_EQ(protection.at("mechanism"), "registrations");
    EXPECT_EQ(protection.at("checks").at("range").at("verdict"), "broken");
    EXPECT_EQ(protection.at("checks").at("binding").at("verdict"), "kept");
  }
  server_->stop();
  config::ServerConfig told = configuration();
  told.transports.rdma_protection = config::RdmaProtection::kRegistrations;
  start(told);
  EXPECT_EQ(device().at("protection").at("reason"), "as configured");
  EXPECT_TRUE(device().at("protection").at("checks").empty()) << "it has asked the device";
}

// A session has one registration for the control channel, one for the lane, and one for each
// extent.
TEST_P(MechanismTest, RegistrationsAreCountedAndBounded) {
  constexpr std::uint32_t kMaxRegistrations = 6;
  config::ServerConfig config = configuration();
  config.transports.rdma_protection = config::RdmaProtection::kRegistrations;
  config.limits.registrations_max = kMaxRegistrations;
  start(config);
  make("small", 64_KiB);
  make("long", 3_MiB);
  EXPECT_EQ(registrations(), 0.0);
  {
    auto engine = Engine::open({.lanes = 1}).value();
    const Session session = engine.connect(uri("")).value();
    std::optional<Region> small = engine.open_region(uri("small"), Rights::kAll).value();
    const double with_one = registrations();
    EXPECT_EQ(with_one, 3.0);
    // The region has three or four extents: too many beside the registrations that exist.
    const auto refused = engine.open_region(uri("long"), Rights::kAll);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kLimitExceeded) << refused.error();
    EXPECT_EQ(refused.error().subject(), "limits.registrations_max") << refused.error();
    EXPECT_GT(refused.error().asked(), refused.error().allowed());
    EXPECT_EQ(refused.error().allowed(), kMaxRegistrations);
    EXPECT_EQ(registrations(), with_one) << "a refusal takes nothing";
    // The open region still works, and a closed one makes room.
    EXPECT_TRUE(small->fetch_add(ByteOffset{0}, 1));
    for (int i = 0; i < 8; ++i) {
      small.reset();
      auto again = engine.open_region(uri("small"), Rights::kAll);
      ASSERT_TRUE(again) << again.error();
      small.emplace(std::move(*again));
    }
    EXPECT_EQ(registrations(), with_one);
  }
  for (Patience patience{std::chrono::seconds{10}}; registrations() != 0.0 && !patience.over();)
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_EQ(registrations(), 0.0) << "the session has gone";
}

INSTANTIATE_TEST_SUITE_P(Mechanism, MechanismTest, testing::Values(TransportKind::kRdma),
                         [](const auto& parameter) {
                           return std::string{to_string(parameter.param)};
                         });

}  // namespace
}  // namespace remora::test
