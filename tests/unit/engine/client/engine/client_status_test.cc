/// The sessions of a client, as /status and the live page show them.

#include "client/engine/client_status.h"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/engine_core.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

using Json = nlohmann::json;

class ClientStatusTest : public ::testing::Test {
 protected:
  /// The only session, whose lanes are on these devices of the server.
  Json session_with_lanes_on(const std::vector<std::string>& server_devices, bool rails) {
    EngineOptions options;
    options.lanes = static_cast<std::uint32_t>(server_devices.size());
    const auto engine = EngineCore::create(options).value();
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    offer.rails = rails;
    for (const std::string& device : server_devices) {
      auto lane = std::make_unique<transport::FakeLane>();
      if (rails) lane->set_rail(device, device == "mlx5_0" ? 100'000 : 25'000);
      offer.more_lanes.push_back(std::move(lane));
    }
    const auto session = transport::start_fake_session(engine, std::move(offer));
    std::vector<SharedSessions::Keyed> sessions;
    sessions.emplace_back("fake|1|rdma|traffic_class=106", session);
    status_ = Json::parse(client_status_json(options, std::move(sessions), {}));
    return status_.at("sessions").at(0);
  }

  Json status_;

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

TEST_F(ClientStatusTest, EachRailIsListedWithItsLanes) {
  const Json session = session_with_lanes_on({"mlx5_0", "mlx5_1", "mlx5_0"}, true);
  EXPECT_EQ(session.at("lanes"), 3);
  const Json rails = session.at("rails");
  ASSERT_EQ(rails.size(), 2U) << rails;
  EXPECT_EQ(rails[0].at("device"), "near-mlx5_0");
  EXPECT_EQ(rails[0].at("server_device"), "mlx5_0");
  EXPECT_EQ(rails[0].at("lanes"), 2);
  EXPECT_EQ(rails[0].at("gigabits_per_s"), 100.0);
  EXPECT_EQ(rails[1].at("device"), "near-mlx5_1");
  EXPECT_EQ(rails[1].at("lanes"), 1);
  EXPECT_EQ(rails[1].at("gigabits_per_s"), 25.0);
  std::vector<std::string> devices;
  for (const Json& each : status_.at("devices"))
    devices.push_back(each.at("name").get<std::string>());
  EXPECT_EQ(devices, (std::vector<std::string>{"near-mlx5_0", "near-mlx5_1", "fake0"}))
      << "those of the lanes, and that of the control channel";
}

TEST_F(ClientStatusTest, SessionOverOneDeviceHasNoRails) {
  const Json session = session_with_lanes_on({"mlx5_0", "mlx5_0"}, false);
  EXPECT_EQ(session.at("rails"), Json::array());
  EXPECT_EQ(session.at("device"), "fake0");
  EXPECT_EQ(session.at("rdma"), "traffic_class=106") << "the settings of the fabric";
}

}  // namespace
}  // namespace remora::detail
