#pragma once

/// Servers of this process over tcp, and striped volumes on them.

#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/volume/cluster.h>
#include <remora/volume/volume.h>

#include "support/assert_ok.h"

namespace remora::volume::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

struct VolumeShape {
  std::uint32_t width = 3;
  std::uint32_t rows = 2;
  std::uint64_t stripe_bytes = 4_KiB;
  std::uint64_t group_bytes = 64_KiB;
  /// The volume ends so many bytes before the end of its last row.
  std::uint64_t unused_bytes = 0;
};

/// Servers "s0", "s1", ..., an engine, and a volume whose groups go round over the servers.
class VolumeRig : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kServers = 3;

  /// For SetUp() of a test that wants an engine of its own kind.
  virtual void configure_engine(EngineOptions& /*options*/) {}
  void SetUp() override;

  [[nodiscard]] const Engine& engine() const { return *engine_; }
  /// Creates the regions of a volume "v".
  VolumeLayout make(const VolumeShape& shape = {});
  Volume open(const VolumeLayout& layout, const VolumeOptions& options = {});
  [[nodiscard]] std::string address(std::uint32_t server) const;
  /// Its memory is gone with it.
  void stop(std::uint32_t server) { servers_[server].reset(); }
  /// With new memory, at the same address.
  void start_again(std::uint32_t server);
  [[nodiscard]] static std::string server_name(std::uint32_t server) {
    return "s" + std::to_string(server);
  }

 private:
  std::vector<std::optional<Server>> servers_;
  std::vector<std::uint16_t> ports_;
  std::optional<Engine> engine_;
};

}  // namespace remora::volume::test
