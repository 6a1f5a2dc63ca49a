#include "mirror_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include <remora/start_thread.h>

#include "engine_member_opener.h"
#include "mirror_adoption.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

Result<std::shared_ptr<MirrorWriter>> MirrorWriter::claim(const remora::detail::EngineShare& engine,
                                                          const Cluster& cluster,
                                                          std::string_view volume,
                                                          const MirrorOptions& options) {
  const auto layout = cluster.layout(volume);
  if (!layout) return layout.error();
  MirrorOptions counted = options;
  counted.metrics = MirrorMetrics::of(engine.registry());
  return claim(std::make_shared<EngineMemberOpener>(
                   engine, cluster, options.transport, Rights::kReadWrite,
                   mirror_region_bytes(layout->volume.group_bytes), options.member_limit),
               cluster, volume, counted);
}

Result<std::shared_ptr<MirrorWriter>> MirrorWriter::claim(std::shared_ptr<MemberOpener> opener,
                                                          const Cluster& cluster,
                                                          std::string_view volume,
                                                          const MirrorOptions& options) {
  auto claim = VolumeClaim::claim(cluster, volume, options);
  if (!claim) return options.metrics->claim_failed(claim.error());
  auto writer = std::make_shared<MirrorWriter>(std::move(*claim), std::move(opener), options);
  if (const Status started = writer->start(); !started)
    return options.metrics->claim_failed(started.error());
  options.metrics->claimed();
  return writer;
}

MirrorWriter::MirrorWriter(std::shared_ptr<VolumeClaim> claim, std::shared_ptr<MemberOpener> opener,
                           const MirrorOptions& options)
    : options_{options},
      claim_{std::move(claim)},
      opener_{std::move(opener)},
      census_{options_.metrics, claim_},
      keeper_{claim_, options_} {}

MirrorWriter::~MirrorWriter() {
  stop();
  keeper_.stop();
  // Without an answer of the store the lease ends the claim.
  if (!claim_->lost()) options_.metrics->released(claim_->release(stays_exclusive()));
}

void MirrorWriter::stop() {
  {
    const MutexLock lock{mutex_};
    stopped_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

/// The claim is renewed while groups are repaired, too.
Status MirrorWriter::start() {
  if (const Status kept = keeper_.start(); !kept) return kept;
  auto thread = remora::detail::start_thread(
      "remora-mirror", [this, claimed = options_.clock->now()] { run(claimed); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  if (const Status done = adopt_all(); !done) return done;
  // `exclusive` of an earlier writer ends when every group is repaired: until then members may
  // differ in zones that a reader could see.
  if (claim_->found_exclusive() && !options_.exclusive && members_are_equal())
    if (const Status done = claim_->end_exclusive(); !done) return done;
  serving_.store(true, std::memory_order_release);
  return {};
}

Status MirrorWriter::adopt_all() {
  // Read after the claim: no older writer can change a group any more.
  const auto layout = claim_->cluster().layout(claim_->volume().name);
  if (!layout) return layout.error();
  census_.expect(layout->groups.size());
  for (std::size_t i = 0; i < layout->groups.size(); ++i) {
    const auto until = MirrorGroup::Time::clock::now() + options_.repair_limit;
    auto group =
        adopt_group(claim_, layout->groups[i], layout->group_values[i], options_, *opener_, until);
    Status done = group ? (*group)->repair(until) : Status{group.error()};
    if (!done && (claim_->lost() || !options_.partial)) return done;
    groups_.push_back(done ? std::move(*group) : nullptr);
    adoptions_.push_back(done);
    census_.add(i, groups_.back().get(), done);
  }
  return {};
}

bool MirrorWriter::has_unresolved() const noexcept {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group != nullptr && group->unresolved().any();
  });
}

bool MirrorWriter::members_are_equal() const {
  const auto open = [](const auto& group) { return group != nullptr; };
  return groups_.size() == claim_->volume().group_count() &&
         std::all_of(groups_.begin(), groups_.end(), open) && !has_unresolved();
}

void MirrorWriter::maintain(bool clear) {
  for (const auto& group : groups_)
    if (group != nullptr) group->maintain(clear);
}

void MirrorWriter::steer() {
  for (const auto& group : groups_)
    if (group != nullptr) group->steer();
}

/// A member that does not answer takes the limit of an operation: groups whose primary changes wait
/// for one such operation, not for those of all groups on its server.
void MirrorWriter::maintain_in_turn(bool clear) {
  using Time = MirrorGroup::Time;
  constexpr std::chrono::milliseconds kOfGroup{100};
  steer();
  Time steered = Time::clock::now();
  for (const auto& group : groups_) {
    if (group == nullptr) continue;
    group->work_on_zones(clear, Time::clock::now() + kOfGroup);
    if (Time::clock::now() - steered < kPeriod) continue;
    steer();
    steered = Time::clock::now();
  }
}

void MirrorWriter::run(std::chrono::nanoseconds claimed) {
  constexpr std::chrono::seconds kClearPeriod{1};
  auto cleared = claimed;
  while (true) {
    {
      MutexLock lock{mutex_};
      const bool stopped = wake_.wait_for(lock, kPeriod, [&] {
        mutex_.assert_held();
        return stopped_;
      });
      if (stopped) return;
    }
    const auto now = options_.clock->now();
    census_.tick(now);
    if (!serving_.load(std::memory_order_acquire)) continue;
    const bool clear = now - cleared >= kClearPeriod;
    if (clear) cleared = now;
    maintain_in_turn(clear);
    // Readers that have not seen `exclusive` yet may read for T.
    const bool readers_gone = now - claimed >= options_.times.readers_gone_after();
    if (options_.exclusive && readers_gone && clear) write_at_once();
  }
}

/// A read that stands still keeps its group from it, and may stand for long: no other read begins
/// meanwhile, and the other groups wait. So it is waited for only as long as reads of a slow
/// network take, once in a second.
void MirrorWriter::write_at_once() {
  constexpr std::chrono::milliseconds kReadsEnd{50};
  wrote_at_once_.store(true, std::memory_order_release);
  for (const auto& group : groups_)
    if (group != nullptr && !group->is_exclusive() &&
        !group->set_exclusive(MirrorGroup::Time::clock::now() + kReadsEnd))
      steer();
}

Status MirrorWriter::release() {
  // Without a writer nothing ends a promotion, and readers would wait for the next one. Its thread
  // does it, once no reader reads the old primary.
  const auto until =
      MirrorGroup::Time::clock::now() + options_.times.readers_gone_after() + options_.member_limit;
  for (const auto& group : groups_)
    if (group != nullptr && group->record().promoting && !claim_->lost())
      static_cast<void>(group->settle_promotion(until));
  stop();
  // Twice: the first call forgets which zones were written just now. The claim is renewed
  // meanwhile.
  maintain(true);
  maintain(true);
  keeper_.stop();
  const bool lost = claim_->lost();  // which the keeper has counted
  const Status done = claim_->release(stays_exclusive());
  if (!lost) options_.metrics->released(done);
  return done;
}

}  // namespace remora::volume::detail
