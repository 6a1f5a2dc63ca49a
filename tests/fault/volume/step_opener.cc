#include "step_opener.h"

#include <span>
#include <utility>

namespace remora::fault {
namespace {

using volume::Member;
using volume::detail::MemberLane;
using volume::detail::MemberRead;
using volume::detail::MemberWrite;
using volume::detail::MirrorMember;

/// What the lanes of one member need to name a step.
struct Watch {
  std::shared_ptr<StepHook> hook;
  std::uint64_t data_offset;
  std::string role;

  [[nodiscard]] std::string kind_of(const MemberWrite& write) const {
    if (write.offset_bytes >= data_offset) return "data." + role;
    return (write.offset_bytes == 0 ? "header." : "mark.") + role;
  }
};

class WatchedLane final : public MemberLane {
 public:
  WatchedLane(std::unique_ptr<MemberLane> inner, std::shared_ptr<const Watch> watch)
      : inner_{std::move(inner)}, watch_{std::move(watch)} {}

  /// Of several writes the first names the step: those of one queue are all of one kind.
  void post(std::span<const MemberWrite> writes) noexcept override {
    kind_ = watch_->kind_of(writes.front());
    watch_->hook->reached(kind_ + ".before");
    inner_->post(writes);
    watch_->hook->reached(kind_ + ".posted");
  }
  void post_reads(std::span<const MemberRead> reads) noexcept override {
    kind_ = "read." + watch_->role;
    inner_->post_reads(reads);
  }
  Status wait() noexcept override {
    Status done = inner_->wait();
    watch_->hook->reached(kind_ + ".ended");
    return done;
  }
  [[nodiscard]] std::unique_ptr<MemberLane> release() noexcept { return std::move(inner_); }

 private:
  std::unique_ptr<MemberLane> inner_;
  const std::shared_ptr<const Watch> watch_;
  std::string kind_;
};

class WatchedMember final : public MirrorMember {
 public:
  WatchedMember(std::shared_ptr<MirrorMember> inner, std::shared_ptr<const Watch> watch)
      : inner_{std::move(inner)}, watch_{std::move(watch)} {}

  Result<std::unique_ptr<MemberLane>> take_lane() noexcept override {
    auto lane = inner_->take_lane();
    if (!lane) return lane.error();
    return std::unique_ptr<MemberLane>{std::make_unique<WatchedLane>(std::move(*lane), watch_)};
  }
  void return_lane(std::unique_ptr<MemberLane> lane) noexcept override {
    if (lane == nullptr) return;
    // Each lane that is returned was taken here.
    inner_->return_lane(static_cast<WatchedLane&>(*lane).release());
  }
  Status read(std::uint64_t offset_bytes, const Target& into) noexcept override {
    return inner_->read(offset_bytes, into);
  }
  Status settled(std::chrono::nanoseconds limit) noexcept override {
    return inner_->settled(limit);
  }
  [[nodiscard]] bool connected() const noexcept override { return inner_->connected(); }
  [[nodiscard]] TransportKind transport() const noexcept override { return inner_->transport(); }

 private:
  const std::shared_ptr<MirrorMember> inner_;
  const std::shared_ptr<const Watch> watch_;
};

}  // namespace

StepOpener::StepOpener(std::shared_ptr<volume::detail::MemberOpener> inner, Options options,
                       std::shared_ptr<StepHook> hook)
    : inner_{std::move(inner)}, options_{std::move(options)}, hook_{std::move(hook)} {}

Member StepOpener::routed(const Member& member) const {
  Member there = member;
  if (const auto found = options_.addresses.find(member.server); found != options_.addresses.end())
    there.addresses = {found->second};
  return there;
}

Result<std::shared_ptr<MirrorMember>> StepOpener::watched(
    Result<std::shared_ptr<MirrorMember>> opened, const Member& member) const {
  if (!opened) return opened;
  const bool primary = member.region == options_.primary_region;
  auto watch = std::make_shared<const Watch>(
      Watch{hook_, options_.data_offset, primary ? "primary" : "backup"});
  return std::shared_ptr<MirrorMember>{
      std::make_shared<WatchedMember>(std::move(*opened), std::move(watch))};
}

Result<std::shared_ptr<MirrorMember>> StepOpener::open(const Member& member) {
  return watched(inner_->open(routed(member)), member);
}

Result<std::shared_ptr<MirrorMember>> StepOpener::fence(const Member& member) {
  hook_->reached("fence.before");
  auto fenced = inner_->fence(routed(member));
  hook_->reached("fence.ended");
  return watched(std::move(fenced), member);
}

}  // namespace remora::fault
