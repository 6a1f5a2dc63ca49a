#include "group_key.h"

#include <array>
#include <utility>

#include <remora/assert.h>

#include "group_changes.h"

namespace remora::volume::detail {

GroupKey::GroupKey(std::shared_ptr<VolumeClaim> claim, GroupRecord record, std::string value)
    : claim_{std::move(claim)},
      key_{claim_->cluster().keys().group(claim_->volume().name, record.index)},
      record_{std::move(record)},
      value_{std::move(value)} {}

Result<Snapshot> GroupKey::read() const {
  const std::array keys{claim_->generation_is().key, claim_->is_writer().key, key_};
  return claim_->cluster().store().get(keys, claim_->cluster().limit());
}

Status GroupKey::commit(const GroupRecord& next) {
  REMORA_ASSERT(!frozen_, "a frozen group begins no transaction but thaw()");
  REMORA_ASSERT(next.epoch >= record_.epoch && next.index == record_.index,
                "the epoch of a group only rises");
  if (claim_->lost()) return claim_->lost_error();
  std::string value = to_json(next);
  const auto committed = claim_->cluster().store().commit(
      {{claim_->generation_is(), claim_->is_writer(), {key_, value_}}, {{key_, value, kNoLease}}},
      claim_->cluster().limit());
  if (!committed) return committed.error();
  if (committed->outcome == Outcome::kRefused) return read_again();
  if (committed->outcome == Outcome::kUnknown) {
    frozen_ = true;
    return Error{Code::kIndeterminate, "transaction on a group"}.with_subject(key_);
  }
  record_ = next;
  value_ = std::move(value);
  return {};
}

Status GroupKey::thaw() {
  if (!frozen_) return {};
  frozen_ = false;
  Status done;
  try {
    done = commit(with_new_nonce(record_));
  } catch (...) {  // no memory: the lost transaction can still apply
    frozen_ = true;
    throw;
  }
  if (done || claim_->lost()) return done;
  if (done.error().code() == Code::kBusy && !frozen_) return {};  // read_again() knows the value
  // An error of the store: the nonce was not changed, and the lost transaction can still apply.
  frozen_ = true;
  return done;
}

/// The value that was compared is gone, if it is another: nonces never repeat. So no transaction
/// that compares it can apply any more.
Status GroupKey::read_again() {
  const auto snapshot = read();
  if (!snapshot) {
    // Not known yet which value is there.
    frozen_ = true;
    return snapshot.error();
  }
  if (!claim_->check(*snapshot)) return claim_->lost_error();
  const Entry* const entry = snapshot->find(key_);
  if (entry == nullptr) {
    claim_->lose();
    return claim_->lost_error();
  }
  auto found = parse_group(key_, entry->value);
  // Only this writer writes under its `w`: the value is that of a transaction that was lost.
  if (!found || (entry->value != value_ && found->adopted != claim_->writer_epoch())) {
    claim_->lose();
    return claim_->lost_error();
  }
  // Refused, and yet the value that was compared: then nothing is known.
  frozen_ = entry->value == value_;
  record_ = std::move(*found);
  value_ = entry->value;
  return Error{Code::kBusy, "transaction on a group"}.with_subject(key_);
}

Status GroupKey::confirm() {
  if (claim_->lost()) return claim_->lost_error();
  const auto snapshot = read();
  if (!snapshot) return snapshot.error();
  if (!claim_->check(*snapshot)) return claim_->lost_error();
  const Entry* const entry = snapshot->find(key_);
  if (entry != nullptr && entry->value == value_) return {};
  if (frozen_) return Error{Code::kBusy, "confirmation of a group"}.with_subject(key_);
  claim_->lose();
  return claim_->lost_error();
}

}  // namespace remora::volume::detail
