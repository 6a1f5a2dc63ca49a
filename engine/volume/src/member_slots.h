#pragma once

/// The open members of one group, each in a slot of its own.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/result.h>
#include <remora/volume/records.h>

#include "group_roles.h"
#include "member_set.h"
#include "mirror_member.h"

namespace remora::volume::detail {

/// A member stays in its slot as long as operations may use it: put() and forget_replaced() need a
/// group without operations. The caller calls these and replace(), find(), free_slot(), shared()
/// and roles_of() one at a time; all other functions are thread-safe.
class MemberSlots {
 public:
  using Outcomes = std::array<Status, kMemberSlots>;
  /// How many may be replaced until forget_replaced().
  static constexpr std::size_t kReplacedMax = 64;

  void put(std::size_t slot, const Member& record, std::shared_ptr<MirrorMember> member);
  /// The same member with another grant. Operations that have begun use the object of before, which
  /// is kept for them. False: kReplacedMax are kept, and nothing has changed.
  [[nodiscard]] bool replace(std::size_t slot, std::shared_ptr<MirrorMember> member);
  void forget_replaced() noexcept { replaced_.clear(); }
  /// A slot that no member of `record` has. Each group has one more than it may have members.
  [[nodiscard]] std::size_t free_slot(const GroupRecord& record) const noexcept;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view region) const noexcept;
  /// An operation asks once, and uses that object to its end.
  [[nodiscard]] MirrorMember& at(std::size_t slot) const noexcept {
    return *slots_[slot].present.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::shared_ptr<MirrorMember> shared(std::size_t slot) const noexcept {
    return slots_[slot].member;
  }
  [[nodiscard]] const Member& record(std::size_t slot) const noexcept {
    return slots_[slot].record;
  }
  /// The sets and the primary of a configuration; the other fields are not set.
  [[nodiscard]] GroupRoles roles_of(const GroupRecord& record) const noexcept;

  /// Posts `write_of(slot)` to each member of `to`, then waits for all. Outcomes of other slots
  /// are not changed.
  template <typename WriteOf>
  void write_all(MemberSet to, const WriteOf& write_of, Outcomes& outcomes) const noexcept {
    on_lanes(
        to,
        [&](MemberLane& lane, std::size_t slot) {
          const MemberWrite write = write_of(slot);
          lane.post(std::span{&write, 1});
        },
        outcomes);
  }
  /// Posts all these writes to each member of `to`, then waits for all.
  void write_together(MemberSet to, std::span<const MemberWrite> writes,
                      Outcomes& outcomes) const noexcept {
    on_lanes(
        to, [&](MemberLane& lane, std::size_t) { lane.post(writes); }, outcomes);
  }

 private:
  struct Slot {
    Member record{};
    std::shared_ptr<MirrorMember> member{};
    std::atomic<MirrorMember*> present{nullptr};  ///< the same one
  };

  template <typename Post>
  void on_lanes(MemberSet to, const Post& post, Outcomes& outcomes) const noexcept {
    std::array<std::unique_ptr<MemberLane>, kMemberSlots> lanes;
    std::array<MirrorMember*, kMemberSlots> owners{};
    to.for_each([&](std::size_t slot) {
      owners[slot] = &at(slot);
      auto lane = owners[slot]->take_lane();
      outcomes[slot] = lane ? ok_status() : Status{lane.error()};
      if (!lane) return;
      lanes[slot] = std::move(*lane);
      post(*lanes[slot], slot);
    });
    to.for_each([&](std::size_t slot) {
      if (lanes[slot] == nullptr) return;
      outcomes[slot] = lanes[slot]->wait();
      owners[slot]->return_lane(std::move(lanes[slot]));
    });
  }

  std::array<Slot, kMemberSlots> slots_;
  std::vector<std::shared_ptr<MirrorMember>> replaced_;
};

}  // namespace remora::volume::detail
