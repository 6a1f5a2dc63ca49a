#pragma once

/// A mirror of one group, whose store and members are in memory.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/volume/cluster.h>
#include <remora/volume/records.h>

#include "fake_members.h"
#include "fake_store.h"
#include "mirror_adoption.h"
#include "mirror_clock.h"
#include "mirror_group.h"
#include "mirror_layout.h"
#include "mirror_options.h"
#include "support/assert_ok.h"
#include "volume_claim.h"

namespace remora::volume::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

class FakeClock final : public detail::MirrorClock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override {
    return std::chrono::nanoseconds{now_.load()};
  }
  void advance(std::chrono::nanoseconds time) { now_ += time.count(); }

 private:
  std::atomic<std::int64_t> now_{std::chrono::nanoseconds{1000s}.count()};
};

/// Servers "s0", "s1", "s2" have the members; "s3" has a region for a rebuild.
class MirrorRig : public ::testing::Test {
 protected:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint64_t kGroupBytes = 3_MiB;
  static constexpr std::uint64_t kData = detail::mirror_data_offset(kGroupBytes);
  static constexpr std::chrono::seconds kLong{30};

  void SetUp() override { make(3); }
  /// A volume "v" of one group with so many members.
  void make(std::size_t copies);
  [[nodiscard]] static Member member_of(std::size_t server);

  [[nodiscard]] static Time soon() { return Time::clock::now() + kLong; }
  [[nodiscard]] static Time at_once() { return Time::clock::now() + std::chrono::milliseconds{30}; }

  /// Claims the volume, as a new client each time.
  std::shared_ptr<detail::VolumeClaim> claim();
  /// Claims, adopts and repairs.
  std::unique_ptr<detail::MirrorGroup> adopt();
  Result<std::unique_ptr<detail::MirrorGroup>> try_to_adopt();

  [[nodiscard]] GroupRecord stored() {
    return parse_group("g", store_->value(group_key())).value();
  }
  void store_group(const GroupRecord& group) { store_->put(group_key(), to_json(group)); }
  [[nodiscard]] std::string group_key() const { return cluster_->keys().group("v", 0); }
  [[nodiscard]] std::vector<std::string> servers_of(const GroupRecord& group) const;
  [[nodiscard]] static std::vector<std::byte> filled(std::size_t length, int value) {
    return std::vector<std::byte>(length, static_cast<std::byte>(value));
  }
  [[nodiscard]] std::vector<std::byte> data_of(std::size_t server, std::uint64_t offset,
                                               std::uint64_t length) const {
    return regions_[server]->bytes(kData + offset, length);
  }
  [[nodiscard]] std::uint64_t word_of(std::size_t server) const;
  /// The members of the stored configuration have the same bytes.
  void expect_equal_members();
  static Status write_filled(detail::MirrorGroup& group, std::uint64_t offset, int value,
                             Time until) {
    const auto bytes = filled(4096, value);
    return group.write(offset, bytes, until);
  }
  /// Of a write that cannot end before its deadline: the deadline is short, and the write is
  /// repeated as long as it ends before anything was posted.
  static Status write_in_vain(detail::MirrorGroup& group, std::uint64_t offset, int value);

  std::shared_ptr<FakeStore> store_;
  std::shared_ptr<FakeClock> clock_;
  std::optional<Cluster> cluster_;
  FakeOpener opener_;
  WriteLog log_;
  std::vector<std::shared_ptr<FakeRegion>> regions_;
  detail::MirrorOptions options_;
  std::vector<VolumeEvent> events_;
};

}  // namespace remora::volume::test
