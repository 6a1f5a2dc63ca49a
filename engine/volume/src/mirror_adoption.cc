#include "mirror_adoption.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "group_changes.h"
#include "group_key.h"
#include "member_header.h"
#include "mirror_log.h"

namespace remora::volume::detail {

namespace {

using AdoptionTime = std::chrono::steady_clock::time_point;

/// One adoption. One thread.
class Adoption {
 public:
  Adoption(const std::shared_ptr<VolumeClaim>& claim, const GroupRecord& record,
           const std::string& value, const MirrorOptions& options, MemberOpener& opener)
      : claim_{claim},
        options_{options},
        opener_{opener},
        key_{claim, record, value},
        restored_{is_restored(record, claim->generation())},
        failures_(record.members.size()),
        opened_(record.members.size()) {}

  Status fence_members() {
    const GroupRecord& group = key_.record();
    if (group.lost || group.members.empty())
      return named(Error{Code::kStaleRegion, "adoption of a group"}.with_reason(Reason::kNewMemory),
                   "no member");
    Status last;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const Member& member = group.members[i];
      if (member.state != MemberState::kInSync && !restored_) continue;
      auto fenced = options_.metrics->fenced(opener_.fence(member));
      if (!fenced) {
        last = failures_[i] = named(fenced.error(), member.server);
        // A server that this client cannot talk to is alive, and has its copy for other clients.
        if (restored_ || fenced.error().reason() == Reason::kVersion) return last;
        continue;
      }
      fenced_.at(i) = true;
      opened_[i] = std::move(*fenced);
    }
    const bool any = std::any_of(fenced_.begin(), fenced_.end(), [](bool each) { return each; });
    return any ? ok_status() : last;
  }

  /// Rule 30. After the fences, so that no header changes any more.
  Status compare_headers() {
    if (!restored_) return {};
    const GroupRecord& group = key_.record();
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      MemberHeader::Bytes bytes{};
      const Status read = opened_[i]->read(0, Target{bytes});
      if (!read) return named(read.error(), group.members[i].server);
      const auto header = MemberHeader::decode(bytes);
      if (!header) return named(header.error(), group.members[i].server);
      if (header->is_ahead_of(group))
        return named(Error{Code::kProtocol, "store that was restored"},
                     group.members[i].server + ", whose header is newer");
    }
    return {};
  }

  /// Rule 8. It comes after the fences, and so confirms their grants.
  Status adopt(AdoptionTime until) {
    constexpr std::chrono::milliseconds kPause{10};
    while (key_.frozen() || key_.record().adopted != claim_->writer_epoch()) {
      Status done = key_.frozen() ? key_.thaw() : commit();
      if (done) continue;
      if (claim_->lost()) return done;
      if (std::chrono::steady_clock::now() >= until) return named(done.error(), "its key");
      std::this_thread::sleep_for(kPause);
    }
    return {};
  }

  /// Of the members that were removed, since no fence reached them. Counts them, too.
  void tell_removed(const GroupRecord& before) const {
    for (std::size_t i = 0; i < before.members.size(); ++i) {
      if (failures_[i]) continue;
      const std::string& server = before.members[i].server;
      options_.metrics->member_removed(failures_[i].error());
      log_member_removed(claim_->volume().name, before.index, server, failures_[i].error());
      if (options_.on_event)
        options_.on_event({.kind = VolumeEventKind::kMemberRemoved,
                           .group = static_cast<std::uint32_t>(before.index),
                           .server = server,
                           .error = failures_[i].error()});
    }
  }
  /// In the order of the adopted configuration.
  [[nodiscard]] std::vector<std::shared_ptr<MirrorMember>> members(const GroupRecord& before) {
    std::vector<std::shared_ptr<MirrorMember>> kept;
    for (const Member& member : key_.record().members)
      for (std::size_t i = 0; i < before.members.size(); ++i)
        if (before.members[i].region == member.region) kept.push_back(std::move(opened_[i]));
    return kept;
  }
  [[nodiscard]] GroupKey take_key() { return std::move(key_); }

 private:
  Status commit() {
    const auto next = adopted(key_.record(), claim_->writer_epoch(), claim_->generation(),
                              std::span{fenced_}.first(key_.record().members.size()));
    if (!next) return next.error();
    return key_.commit(*next);
  }
  [[nodiscard]] Error named(const Error& error, const std::string& what) const {
    return error.with_subject(claim_->volume().name + ", group " +
                              std::to_string(key_.record().index) + ", member " + what);
  }

  const std::shared_ptr<VolumeClaim> claim_;
  const MirrorOptions& options_;
  MemberOpener& opener_;
  GroupKey key_;
  const bool restored_;
  std::array<bool, kMemberSlots> fenced_{};
  std::vector<Status> failures_;  ///< of the fences
  std::vector<std::shared_ptr<MirrorMember>> opened_;
};

}  // namespace

Result<std::unique_ptr<MirrorGroup>> adopt_group(const std::shared_ptr<VolumeClaim>& claim,
                                                 const GroupRecord& record,
                                                 const std::string& value,
                                                 const MirrorOptions& options, MemberOpener& opener,
                                                 AdoptionTime until) {
  Adoption adoption{claim, record, value, options, opener};
  if (const Status fenced = adoption.fence_members(); !fenced) return fenced.error();
  if (const Status compared = adoption.compare_headers(); !compared) return compared.error();
  if (const Status done = adoption.adopt(until); !done) return done.error();
  adoption.tell_removed(record);
  auto members = adoption.members(record);
  return MirrorGroup::create(adoption.take_key(), members, claim->volume().group_bytes, options,
                             opener);
}

}  // namespace remora::volume::detail
