#include "transport/rdma/device_metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>

#include <remora/metrics/registry.h>

namespace remora::transport::rdma {
namespace {

namespace fs = std::filesystem;

class DeviceMetrics : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "device-metrics-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    put("hw_counters", "out_of_sequence", "7");
    put("counters", "port_xmit_data", "100");
    put("counters", "port_rcv_data", "50");
    put("hw_counters", "rx_write_requests", "9");  // not of the list
    put("counters", "port_rcv_errors", "N/A (no PMA)");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& kind, const std::string& name, const std::string& text) const {
    const fs::path file = folder_ / "mlx5_0/ports/1" / kind / name;
    fs::create_directories(file.parent_path());
    std::ofstream{file} << text << '\n';
  }
  void show() { show_device_counters(*registry_, "mlx5_0", folder_.string()); }
  [[nodiscard]] double events(const char* counter) const {
    return registry_
        ->value("remora_nic_events_total",
                {{"device", "mlx5_0"}, {"port", "1"}, {"counter", counter}})
        .value();
  }
  [[nodiscard]] double bytes(const char* direction) const {
    return registry_
        ->value("remora_nic_bytes_total",
                {{"device", "mlx5_0"}, {"port", "1"}, {"direction", direction}})
        .value();
  }
  fs::path folder_;
  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
};

TEST_F(DeviceMetrics, ShowWhatTheDeviceCountsNow) {
  show();
  EXPECT_EQ(events("out_of_sequence"), 7);
  EXPECT_EQ(bytes("sent"), 400) << "the device counts in units of four";
  EXPECT_EQ(bytes("received"), 200);
  put("hw_counters", "out_of_sequence", "8");
  EXPECT_EQ(events("out_of_sequence"), 8);
}

TEST_F(DeviceMetrics, LeaveOutWhatIsNotOfTheListOrHasNoValue) {
  show();
  EXPECT_EQ(registry_->series_count(), 3U);
  EXPECT_EQ(registry_->text().find("rx_write_requests"), std::string::npos);
  EXPECT_EQ(registry_->text().find("port_rcv_errors"), std::string::npos);
}

TEST_F(DeviceMetrics, SecondUserOfADeviceChangesNothing) {
  show();
  show();
  EXPECT_EQ(registry_->series_count(), 3U);
  EXPECT_EQ(events("out_of_sequence"), 7);
}

TEST_F(DeviceMetrics, DeviceThatHasGoneHasNoValue) {
  show();
  fs::remove_all(folder_ / "mlx5_0");
  EXPECT_TRUE(std::isnan(events("out_of_sequence")));
  EXPECT_FALSE(registry_->text().empty());
}

TEST_F(DeviceMetrics, UnknownDeviceHasNone) {
  show_device_counters(*registry_, "rxe7", folder_.string());
  EXPECT_EQ(registry_->series_count(), 0U);
}

TEST_F(DeviceMetrics, FullRegistryShowsWhatThereIsRoomFor) {
  registry_ = metrics::Registry::create({.series_max = 2}).value();
  show();
  EXPECT_EQ(registry_->series_count(), 2U);
}

}  // namespace
}  // namespace remora::transport::rdma
