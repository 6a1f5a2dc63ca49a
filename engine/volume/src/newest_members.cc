#include "newest_members.h"

#include <algorithm>
#include <string>
#include <utility>

namespace remora::volume::detail {

namespace {

constexpr Operation kNewest{"headers of a group"};

bool is_older(const MemberHeader& left, const MemberHeader& right) noexcept {
  return std::pair{left.writer_epoch, left.epoch} < std::pair{right.writer_epoch, right.epoch};
}

/// Before the record was written: the record does not name it, and is newer than its header. Of
/// whatever generation the header is.
bool was_removed(const FoundMember& found, const GroupRecord& record) noexcept {
  const bool named =
      std::any_of(record.members.begin(), record.members.end(),
                  [&](const Member& each) { return each.region == found.member.region; });
  return !named && std::pair{found.header.writer_epoch, found.header.epoch} <
                       std::pair{record.adopted, record.epoch};
}

}  // namespace

Result<GroupRecord> with_newest_members(const GroupRecord& record,
                                        const std::vector<FoundMember>& found) {
  const FoundMember* newest = nullptr;
  for (const FoundMember& each : found) {
    if (each.header == MemberHeader{} || was_removed(each, record)) continue;
    if (newest != nullptr && newest->header.generation != each.header.generation)
      return Error{Code::kProtocol, kNewest}.with_subject("group " + std::to_string(record.index) +
                                                          ": of two generations");
    if (newest == nullptr || is_older(newest->header, each.header)) newest = &each;
  }
  if (newest == nullptr) return record;
  GroupRecord next = record;
  next.members.clear();
  next.promoting = false;
  bool has_primary = false;
  for (const FoundMember& each : found) {
    if (was_removed(each, record) || each.header.writer_epoch != newest->header.writer_epoch ||
        each.header.epoch != newest->header.epoch || each.header.role < MemberRole::kInSync)
      continue;
    const bool primary = each.header.role == MemberRole::kPrimary;
    next.members.insert(primary ? next.members.begin() : next.members.end(), each.member);
    next.members[primary ? 0 : next.members.size() - 1].state = MemberState::kInSync;
    next.promoting = next.promoting || each.header.promoting;
    has_primary = has_primary || primary;
  }
  if (next.members.empty())
    return Error{Code::kStaleRegion, kNewest}.with_subject("group " + std::to_string(record.index) +
                                                           ": no member is in sync");
  // A reader may still read a primary that was not found.
  next.promoting = next.promoting || !has_primary;
  next.epoch = newest->header.epoch;
  next.adopted = newest->header.writer_epoch;
  next.generation = newest->header.generation;
  next.lost = false;
  next.restored = true;
  next.nonce = random_number();
  return next;
}

}  // namespace remora::volume::detail
