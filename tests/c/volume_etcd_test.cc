// Clusters in etcd through the C API. A real etcd, where it is installed.

#include <gmock/gmock.h>
#include <optional>
#include <string>
#include <vector>

#include "volume_test.h"

namespace remora::test {
namespace {

using ::testing::HasSubstr;
using volume::test::EtcdProcess;
using volume::test::has_etcd;

/// libcurl is loaded, and its error becomes ours.
TEST_F(VolumeTest, EtcdThatIsNotThereIsNamed) {
  const std::string nowhere =
      "remora+etcd://127.0.0.1:" + std::to_string(volume::test::free_port()) + "/lab/disk";
  EXPECT_EQ(remora_engine_open_volume(engine_, nowhere.c_str(), nullptr, &volume_, &error_),
            REMORA_UNREACHABLE)
      << error_.message;
  EXPECT_THAT(error_.message, HasSubstr("check that etcd runs"));
}

TEST_F(VolumeTest, FilesForEtcdAreLookedFor) {
  remora_volume_options options = no_options();
  options.etcd_ca_file = "/nonexistent/ca.pem";
  EXPECT_EQ(remora_engine_open_volume(engine_, "remora+etcd://127.0.0.1/lab/disk?tls=on", &options,
                                      &volume_, &error_),
            REMORA_NOT_FOUND);
  EXPECT_THAT(error_.message, HasSubstr("/nonexistent/ca.pem"));
}

class VolumeInEtcdTest : public VolumeTest {
 protected:
  std::string cluster_uri() override { return "remora+etcd://" + etcd_->address() + "/lab"; }
  void SetUp() override {
    if (!has_etcd()) GTEST_SKIP() << "etcd is not installed: ci/setup.sh cluster";
    etcd_.emplace();
    etcd_->start();
    VolumeTest::SetUp();
  }

 private:
  std::optional<EtcdProcess> etcd_;
};

TEST_F(VolumeInEtcdTest, IsOpenedAndUsed) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  const std::vector<unsigned char> written = pattern(6 * kStripe, 2);
  std::vector<unsigned char> found(written.size());
  ASSERT_EQ(remora_volume_write(volume_, 0, written.data(), written.size(), nullptr, 0, &error_),
            REMORA_OK)
      << error_.message;
  ASSERT_EQ(remora_volume_read(volume_, 0, found.data(), found.size(), nullptr, 0, &error_),
            REMORA_OK);
  EXPECT_EQ(found, written);
}

}  // namespace
}  // namespace remora::test
