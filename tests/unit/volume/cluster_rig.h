#pragma once

/// Servers of this process over tcp, registered in a cluster file, and mirrors on them.

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>

#include "support/assert_ok.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

/// Servers "s0", "s1", ... in failure domains of their own.
class ClusterRig : public ::testing::Test {
 protected:
  static constexpr int kServers = 4;
  static constexpr std::uint64_t kGroup = 2_MiB;

  void SetUp() override;

  [[nodiscard]] const Cluster& cluster() const { return *cluster_; }
  /// A new engine each time: no session of an earlier work is left that waits for a server.
  [[nodiscard]] static Engine engine();
  [[nodiscard]] Server& server(int index) { return *servers_[std::size_t(index)]; }
  [[nodiscard]] std::string address(int index) const;
  /// Its memory is gone, and so is its record.
  void kill(int index);
  /// Starts it again, with new memory.
  void start(int index);
  /// A mirror "disk" of two copies and `groups` groups.
  [[nodiscard]] static VolumeSpec spec(std::uint64_t groups = 2, std::uint32_t copies = 2);
  /// The same as a volume that is there.
  VolumeLayout make(std::uint64_t groups = 2, std::uint32_t copies = 2);
  [[nodiscard]] VolumeLayout layout() const { return cluster().layout("disk").value(); }
  [[nodiscard]] std::size_t regions() const;
  /// The bytes of the member's region, behind header and bitmap.
  [[nodiscard]] std::vector<std::byte> data_of(const Member& member) const;
  /// All members of each group have the same bytes, and each group has so many.
  void expect_whole(std::uint32_t copies = 2) const;
  void expect_no_keys() const;

 private:
  void register_server(int index);

  TemporaryFolder folder_;
  std::optional<Cluster> cluster_;
  std::vector<std::optional<Server>> servers_;
};

}  // namespace remora::volume::test
