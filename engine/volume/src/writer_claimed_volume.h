#pragma once

/// A ClaimedVolume over the claimed writer of a mirror.

#include <memory>
#include <string>

#include "claimed_volume.h"
#include "mirror_writer.h"

namespace remora::volume::detail {

/// Shares the writer. Thread-safe.
class WriterClaimedVolume final : public ClaimedVolume {
 public:
  explicit WriterClaimedVolume(std::shared_ptr<MirrorWriter> writer) noexcept;

  [[nodiscard]] const VolumeRecord& volume() const noexcept override;
  [[nodiscard]] std::uint32_t group_count() const noexcept override;
  [[nodiscard]] bool claimed() const noexcept override;
  Status confirm() override;
  [[nodiscard]] bool is_ours(const VolumeLayout& layout) const override;
  [[nodiscard]] bool group_open(std::uint32_t group) const override;
  [[nodiscard]] Status adoption(std::uint32_t group) const override;
  [[nodiscard]] GroupRecord group(std::uint32_t group) const override;
  [[nodiscard]] std::uint32_t zone_count() const noexcept override;
  Status add_syncing(std::uint32_t group, const Member& member, Time until) override;
  Status copy_zone(std::uint32_t group, std::uint32_t zone, Time until) override;
  Status make_in_sync(std::uint32_t group, Time until) override;
  Status remove_member(std::uint32_t group, const std::string& region, Time until) override;
  void tell(const VolumeEvent& event) override;
  Status settle_promotion(std::uint32_t group, Time until) override;

 private:
  const std::shared_ptr<MirrorWriter> writer_;
};

}  // namespace remora::volume::detail
