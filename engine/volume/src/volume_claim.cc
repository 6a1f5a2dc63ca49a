#include "volume_claim.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "decided_commit.h"
#include "record_reader.h"

namespace remora::volume::detail {

namespace {

constexpr Operation kClaim{"claim of a volume"};
/// Other clients may change the volume meanwhile.
constexpr int kRounds = 3;
constexpr std::size_t kIdentityBytesMax = 200;

std::string identity_of(const MirrorOptions& options) {
  if (!options.identity.empty()) return options.identity;
  std::array<char, 65> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"host"};
  return std::string{host.data()} + "-" + std::to_string(::getpid()) + "-" +
         hexadecimal(random_number());
}

/// It is part of the volume's record, whose reader refuses longer texts. In a record that no client
/// can read the volume is gone.
bool is_identity(std::string_view text) noexcept {
  return text.size() <= kIdentityBytesMax && std::all_of(text.begin(), text.end(), [](char each) {
           return each >= ' ' && each <= '~';
         });
}

VolumeRecord claimed(const VolumeRecord& volume, const std::string& identity, bool exclusive) {
  VolumeRecord next = volume;
  ++next.writer_epoch;
  next.writer = identity;
  // Once set, it ends only when every group is repaired (MirrorWriter).
  next.exclusive = volume.exclusive || exclusive;
  next.nonce = random_number();
  return next;
}

}  // namespace

VolumeClaim::VolumeClaim(const Cluster& cluster, VolumeRecord volume, std::uint64_t generation,
                         LeaseId lease, std::chrono::seconds lifetime, bool found_exclusive)
    : cluster_{cluster},
      volume_{std::move(volume)},
      generation_{generation},
      volume_key_{cluster_.keys().volume(volume_.name)},
      lifetime_{lifetime},
      found_exclusive_{found_exclusive},
      volume_value_{to_json(volume_)},
      lease_{lease} {}

Result<std::shared_ptr<VolumeClaim>> VolumeClaim::claim(const Cluster& cluster,
                                                        std::string_view volume,
                                                        const MirrorOptions& options) {
  MetadataStore& store = cluster.store();
  const std::string identity = identity_of(options);
  if (!is_identity(identity))
    return Error{Code::kInvalidArgument, kClaim}
        .with_subject("identity, which is at most 200 printable ASCII characters")
        .with_limit(identity.size(), kIdentityBytesMax);
  const std::string liveness = cluster.keys().writer(volume);
  for (int round = 0; round < kRounds; ++round) {
    const auto layout = cluster.layout(volume);
    if (!layout) return layout.error();
    if (layout->volume.kind != Kind::kMirror)
      return Error{Code::kUnsupported, kClaim}.with_subject(layout->volume.name +
                                                            ", a striped volume needs no claim");
    const auto writer = get_one(store, liveness, cluster.limit());
    if (!writer) return writer.error();
    if (*writer && !options.steal)
      return Error{Code::kBusy, kClaim}.with_subject((*writer)->value).with_reason(Reason::kHeld);
    const auto lease = store.grant_lease(options.lease, cluster.limit());
    if (!lease) return lease.error();
    const VolumeRecord next = claimed(layout->volume, identity, options.exclusive);
    const std::optional<std::string> before =
        *writer ? std::optional{(*writer)->value} : std::nullopt;
    const auto applied = commit_decided(
        cluster,
        {{cluster.generation_is(layout->generation),
          {cluster.keys().volume(volume), layout->volume_value},
          {liveness, before}},
         {{cluster.keys().volume(volume), to_json(next), kNoLease}, {liveness, identity, *lease}}});
    if (applied && *applied)
      return std::make_shared<VolumeClaim>(cluster, next, layout->generation, *lease, options.lease,
                                           layout->volume.exclusive);
    // Of a transaction without a known outcome the lease ends by itself.
    if (!applied) return applied.error();
    static_cast<void>(store.revoke(*lease, cluster.limit()));
  }
  return Error{Code::kBusy, "volume that another client changes"}.with_subject(volume);
}

/// Values never repeat, so one of this claim's was not written by another client.
bool VolumeClaim::is_own(const std::string& value) const {
  const remora::detail::MutexLock lock{mutex_};
  return value == volume_value_ || (!other_value_.empty() && value == other_value_);
}

bool VolumeClaim::check(const Snapshot& snapshot) {
  const Entry* const volume = snapshot.find(volume_key_);
  if (volume == nullptr || !is_own(volume->value)) lose();
  const Compare generation = generation_is();
  const Entry* const present = snapshot.find(generation.key);
  if (present == nullptr || present->value != generation.value) lose();
  return !lost();
}

Error VolumeClaim::lost_error() const {
  return Error{Code::kAccessRefused, kClaim}
      .with_reason(Reason::kFenced)
      .with_subject(volume_.name + ", another client has claimed it since");
}

Status VolumeClaim::keep_alive() {
  if (lost()) return lost_error();
  const remora::detail::MutexLock turn{transactions_};
  if (const Status renewed = renew_lease(); !renewed) return renewed;
  const auto snapshot = look();
  if (!snapshot) return snapshot.error();
  if (snapshot->find(cluster_.keys().writer(volume_.name)) != nullptr) return {};
  // It went with the lease before, or its transaction has not applied.
  return bind_liveness();
}

Status VolumeClaim::renew_lease() {
  MetadataStore& store = cluster_.store();
  const Status kept = store.keep_alive(lease(), cluster_.limit());
  if (kept || kept.error().code() != Code::kNotFound) return kept;
  const auto granted = store.grant_lease(lifetime_, cluster_.limit());
  if (!granted) return granted.error();
  // From now on it is the one that is renewed, whatever becomes of the key's transaction.
  const remora::detail::MutexLock lock{mutex_};
  lease_ = *granted;
  return {};
}

/// Other clients may have claimed the volume while the key was gone: then this is refused.
Status VolumeClaim::bind_liveness() {
  const auto committed =
      cluster_.store().commit({{generation_is(), is_writer()},
                               {{cluster_.keys().writer(volume_.name), volume_.writer, lease()}}},
                              cluster_.limit());
  if (!committed) return committed.error();
  if (committed->outcome == Outcome::kApplied) return {};
  // The next renewal looks whether it has applied.
  if (committed->outcome == Outcome::kUnknown)
    return committed->cause.value_or(Error{Code::kTimedOut, kClaim});
  lose();
  return lost_error();
}

Result<Snapshot> VolumeClaim::look() {
  const std::array keys{volume_key_, cluster_.keys().generation(),
                        cluster_.keys().writer(volume_.name)};
  auto snapshot = cluster_.store().get(keys, cluster_.limit());
  if (snapshot && !check(*snapshot)) return lost_error();
  return snapshot;
}

Status VolumeClaim::confirm() {
  if (lost()) return lost_error();
  const auto snapshot = look();
  return snapshot ? ok_status() : Status{snapshot.error()};
}

LeaseId VolumeClaim::lease() const {
  const remora::detail::MutexLock lock{mutex_};
  return lease_;
}

Result<bool> VolumeClaim::replace(const VolumeRecord& next, const std::vector<Change>& more) {
  const std::string value = to_json(next);
  Transaction transaction{{generation_is(), is_writer()}, {{volume_key_, value, kNoLease}}};
  transaction.changes.insert(transaction.changes.end(), more.begin(), more.end());
  const auto applied = commit_decided(cluster_, transaction);
  // Without an answer this writer does not know the volume's value any more.
  if (!applied || !*applied) lose();
  if (applied && *applied) {
    const remora::detail::MutexLock lock{mutex_};
    other_value_ = std::exchange(volume_value_, value);
  }
  return applied;
}

Status VolumeClaim::end_exclusive() {
  if (lost()) return lost_error();
  const remora::detail::MutexLock turn{transactions_};
  VolumeRecord next = volume_;
  next.exclusive = false;
  next.nonce = random_number();
  {
    // Other threads may read it before this one knows that it is there.
    const remora::detail::MutexLock lock{mutex_};
    other_value_ = to_json(next);
  }
  const auto applied = replace(next, {});
  if (!applied) return applied.error();
  if (!*applied) return lost_error();
  found_exclusive_.store(false, std::memory_order_release);
  return {};
}

Status VolumeClaim::release(bool exclusive) {
  if (lost()) return lost_error();
  const remora::detail::MutexLock turn{transactions_};
  VolumeRecord next = volume_;
  next.writer.clear();
  next.exclusive = exclusive;
  next.nonce = random_number();
  const auto applied =
      replace(next, {{cluster_.keys().writer(volume_.name), std::nullopt, kNoLease}});
  lose();
  if (!applied) return applied.error();
  if (!*applied) return lost_error();
  static_cast<void>(cluster_.store().revoke(lease(), cluster_.limit()));
  return {};
}

}  // namespace remora::volume::detail
