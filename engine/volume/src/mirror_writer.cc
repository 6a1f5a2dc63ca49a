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
  return claim(std::make_shared<EngineMemberOpener>(
                   engine, cluster, options.transport, Rights::kReadWrite,
                   mirror_region_bytes(layout->volume.group_bytes), options.member_limit),
               cluster, volume, options);
}

Result<std::shared_ptr<MirrorWriter>> MirrorWriter::claim(std::shared_ptr<MemberOpener> opener,
                                                          const Cluster& cluster,
                                                          std::string_view volume,
                                                          const MirrorOptions& options) {
  auto claim = VolumeClaim::claim(cluster, volume, options);
  if (!claim) return claim.error();
  auto writer = std::make_shared<MirrorWriter>(std::move(*claim), std::move(opener), options);
  if (const Status started = writer->start(); !started) return started.error();
  return writer;
}

MirrorWriter::MirrorWriter(std::shared_ptr<VolumeClaim> claim, std::shared_ptr<MemberOpener> opener,
                           const MirrorOptions& options)
    : options_{options}, claim_{std::move(claim)}, opener_{std::move(opener)} {}

MirrorWriter::~MirrorWriter() {
  stop();
  // Without an answer of the store the lease ends the claim.
  if (!claim_->lost()) static_cast<void>(claim_->release(claim_->volume().exclusive));
}

void MirrorWriter::stop() {
  {
    const MutexLock lock{mutex_};
    stopped_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

/// The thread renews the claim while groups are repaired, too.
Status MirrorWriter::start() {
  auto thread = remora::detail::start_thread("remora-mirror", [this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  if (const Status done = adopt_all(); !done) return done;
  if (claim_->volume().exclusive && !options_.exclusive)
    if (const Status done = end_exclusive(); !done) return done;
  serving_.store(true, std::memory_order_release);
  return {};
}

Status MirrorWriter::adopt_all() {
  // Read after the claim: no older writer can change a group any more.
  const auto layout = claim_->cluster().layout(claim_->volume().name);
  if (!layout) return layout.error();
  for (std::size_t i = 0; i < layout->groups.size(); ++i) {
    const auto until = MirrorGroup::Time::clock::now() + options_.repair_limit;
    auto group =
        adopt_group(claim_, layout->groups[i], layout->group_values[i], options_, *opener_, until);
    Status done = group ? (*group)->repair(until) : Status{group.error()};
    if (!done && (claim_->lost() || !options_.partial)) return done;
    groups_.push_back(done ? std::move(*group) : nullptr);
  }
  return {};
}

/// `exclusive` of an earlier writer ends when every group is repaired: until then members may
/// differ in zones that a reader could see.
Status MirrorWriter::end_exclusive() {
  if (!is_clean()) return {};
  return claim_->end_exclusive();
}

bool MirrorWriter::is_clean() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group != nullptr && !group->marked().any() && !group->unresolved().any();
  });
}

void MirrorWriter::maintain(bool clear) {
  for (const auto& group : groups_)
    if (group != nullptr) group->maintain(clear);
}

void MirrorWriter::run() {
  constexpr std::chrono::milliseconds kPeriod{20};
  constexpr std::chrono::seconds kClearPeriod{1};
  auto renewed = options_.clock->now();
  auto cleared = renewed;
  const auto claimed = renewed;
  bool reported = false;
  bool exclusive = false;
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
    if (now - renewed >= std::chrono::nanoseconds{options_.lease} / 3) {
      // A renewal that fails is tried again at once: other clients may steal meanwhile, no more.
      if (claim_->keep_alive()) renewed = now;
    }
    const bool serving = serving_.load(std::memory_order_acquire);
    if (serving) {
      const bool clear = now - cleared >= kClearPeriod;
      if (clear) cleared = now;
      maintain(clear);
    }
    // Readers that have not seen `exclusive` yet may read for T.
    if (serving && !exclusive && options_.exclusive &&
        now - claimed >= options_.times.readers_gone_after()) {
      exclusive = true;
      for (const auto& group : groups_)
        if (group != nullptr) group->set_exclusive(true);
    }
    if (claim_->lost() && !reported) {
      reported = true;
      if (options_.on_event)
        options_.on_event({.kind = VolumeEventKind::kWriterLost, .error = claim_->lost_error()});
    }
  }
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
  // Twice: the first call forgets which zones were written just now.
  maintain(true);
  maintain(true);
  return claim_->release(claim_->volume().exclusive && !is_clean());
}

}  // namespace remora::volume::detail
