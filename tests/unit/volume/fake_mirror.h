#pragma once

/// A claimed mirror and its servers without a network: each step is noted, and can fail or crash.
/// Thread-safe: one step at a time.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <remora/volume/cluster.h>

#include "claimed_volume.h"
#include "member_header.h"
#include "member_regions.h"

namespace remora::volume::test {

/// The process ends here: nothing after it runs.
struct Crash {};

/// The regions of all servers, the groups' records and the steps that were taken.
class FakeMirror final : public detail::ClaimedVolume, public detail::MemberRegions {
 public:
  /// Servers "s0", "s1", ...; group g of a mirror of two has members on s(g) and s(g + 1).
  FakeMirror(std::uint32_t servers, std::uint32_t groups, std::uint32_t zones);

  /// Called before each step, with its name; may throw Crash. Not ok: the step fails so.
  std::function<Status(std::string_view step)> before_step{};
  /// The steps that were taken, such as "copy 0/1". Read while no thread works.
  std::vector<std::string> steps{};
  [[nodiscard]] std::size_t step_count() const;
  /// The events that were told. Read while no thread works.
  std::vector<VolumeEvent> events{};

  [[nodiscard]] const VolumeLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] VolumeLayout& layout() noexcept { return layout_; }
  [[nodiscard]] VolumeRecord& record() noexcept { return layout_.volume; }
  /// The member's server has died: its regions are gone, and the claimed writer has removed it.
  void lose_server(const std::string& server);
  /// What the next claim does: syncing members are removed.
  void claim_again();
  /// Whether each in-sync member has the bytes that were written to the group.
  [[nodiscard]] bool members_equal() const;
  /// Names of regions that no group uses.
  [[nodiscard]] std::vector<std::string> orphans() const;
  [[nodiscard]] std::size_t in_sync(std::uint32_t group) const;
  void close_group(std::uint32_t group) {
    close_group(group, Error{Code::kConnectionLost, "member"});
  }
  void close_group(std::uint32_t group, const Error& why) { closed_[group] = why; }
  void lose_claim();
  /// Of a region that make() has made: until then it has a header of zeroes.
  void set_header(const std::string& region, const detail::MemberHeader& header) {
    regions_.at(region).header = header;
  }

  // ClaimedVolume
  [[nodiscard]] const VolumeRecord& volume() const noexcept override { return layout_.volume; }
  [[nodiscard]] std::uint32_t group_count() const noexcept override;
  [[nodiscard]] bool claimed() const noexcept override;
  Status confirm() override;
  [[nodiscard]] bool is_ours(const VolumeLayout& layout) const override {
    return claimed() && layout.volume_value == layout_.volume_value;
  }
  [[nodiscard]] bool group_open(std::uint32_t group) const override;
  [[nodiscard]] Status adoption(std::uint32_t group) const override;
  [[nodiscard]] GroupRecord group(std::uint32_t group) const override;
  [[nodiscard]] std::uint32_t zone_count() const noexcept override { return zones_; }
  Status add_syncing(std::uint32_t group, const Member& member, Time until) override;
  Status copy_zone(std::uint32_t group, std::uint32_t zone, Time until) override;
  Status make_in_sync(std::uint32_t group, Time until) override;
  Status remove_member(std::uint32_t group, const std::string& region, Time until) override;
  void tell(const VolumeEvent& event) override;
  Status settle_promotion(std::uint32_t group, Time until) override;

  // MemberRegions
  bool refresh(ServerRecord& /*server*/) override { return true; }
  Managed<Member> make(const ServerRecord& server, const RegionSpec& spec) override;
  Result<RegionInfo> stat(const Member& member, const std::vector<std::string>& addresses) override;
  Result<std::vector<std::string>> list(const std::string& server,
                                        const std::vector<std::string>& addresses,
                                        std::string_view prefix) override;
  Result<detail::MemberHeader> read_header(const std::string& server,
                                           const std::vector<std::string>& addresses,
                                           const std::string& region) override;
  Status remove(const std::string& server, const std::vector<std::string>& addresses,
                const std::string& region) override;

 private:
  struct Contents {
    std::string server{};
    std::vector<std::uint64_t> zones{};
    detail::MemberHeader header{};
  };
  /// Notes the step, or fails.
  Status step(const std::string& name);
  [[nodiscard]] const std::string& server_of(std::uint32_t group, const std::string& region) const;

  /// Recursive: before_step may call back.
  mutable std::recursive_mutex mutex_;
  VolumeLayout layout_;
  std::uint32_t zones_;
  std::map<std::string, Contents> regions_;
  std::map<std::uint32_t, Status> closed_;
  bool claimed_ = true;
  std::uint64_t next_region_ = 1;
};

}  // namespace remora::volume::test
