#include "claimed_work.h"

#include <memory>
#include <string>
#include <utility>

#include "engine_member_regions.h"
#include "remove_remains.h"
#include "volume_builder.h"

namespace remora::volume::detail {

namespace {

std::string done_before(const MaintenanceReport& report) {
  return "before that " + std::to_string(report.members_added) + " copies were made and " +
         std::to_string(report.members_moved) + " moved; the same command goes on";
}

tl::unexpected<Failure> another_claim(const std::string& volume) {
  return failure(Error{Code::kStaleRegion, "claim of a volume"}.with_subject(volume),
                 "another client has claimed the volume meanwhile");
}

/// Before anything was copied.
tl::unexpected<Failure> cancelled(const std::string& volume) {
  return failure(Error{Code::kCancelled, "work on a volume"}.with_subject(volume),
                 done_before(MaintenanceReport{}));
}

}  // namespace

Managed<MaintenanceReport> with_claimed(const Cluster& cluster, ClaimedVolume& volume,
                                        MemberRegions& regions, const MaintenanceOptions& options,
                                        const Work& work) {
  // Read after the claim: what another client has begun before cannot apply any more.
  auto layout = cluster.layout(volume.volume().name);
  if (!layout) return failure(layout.error());
  // Each of the next steps waits for a server that does not answer.
  bool stopped = false;
  const auto stops = [&] {
    stopped = stopped || (options.stop && options.stop());
    return stopped;
  };
  if (stops()) return cancelled(volume.volume().name);
  // A claim whose lease has ended may be another client's by now: its groups and regions are not
  // remains of an earlier work.
  if (!volume.is_ours(*layout)) return another_claim(volume.volume().name);
  if (auto removed = remove_extra_groups(cluster, *layout); !removed)
    return tl::unexpected<Failure>{removed.error()};
  MirrorWork cleaning{volume, regions, *layout, options};
  cleaning.remove_orphans(stops);
  std::string silent;
  for (ServerRecord& server : layout->servers) {
    if (stops()) break;
    if (regions.refresh(server)) continue;
    server.pool_free_bytes = 0;
    silent.append(silent.empty() ? "" : ", ").append(server.name);
  }
  if (stops()) return cancelled(volume.volume().name);
  MirrorWork mirror{volume, regions, *layout, options};
  if (const auto done = work(mirror); !done) {
    Failure failed = done.error();
    failed.detail.append(failed.detail.empty() ? "" : "; ").append(done_before(mirror.report()));
    return tl::unexpected<Failure>{std::move(failed)};
  }
  MaintenanceReport report = mirror.report();
  if (!report.left.empty() && !silent.empty())
    report.left.push_back("servers that did not tell their free memory were left out: " + silent);
  MaintenanceReport cleaned = cleaning.report();
  cleaned.groups = 0;  // the same ones
  add(report, cleaned);
  return report;
}

Managed<std::shared_ptr<MirrorWriter>> claim_for_work(const Cluster& cluster, const Engine& engine,
                                                      std::string_view name,
                                                      const MaintenanceOptions& options) {
  MirrorOptions mirror;
  mirror.steal = options.steal;
  mirror.partial = true;
  auto writer = MirrorWriter::claim(engine, cluster, name, mirror);
  if (writer) return std::move(*writer);
  const bool held =
      writer.error().code() == Code::kBusy && writer.error().reason() == Reason::kHeld;
  return failure(
      writer.error(),
      held ? "a program has the claim of the volume: end it, or take the claim with --steal" : "");
}

Managed<MaintenanceReport> with_claim(const Cluster& cluster, const Engine& engine,
                                      std::string_view name, const MaintenanceOptions& options,
                                      const Work& work) {
  auto writer = claim_for_work(cluster, engine, name, options);
  if (!writer) return tl::unexpected<Failure>{writer.error()};
  WriterClaimedVolume volume{*writer};
  EngineMemberRegions regions{engine};
  auto done = with_claimed(cluster, volume, regions, options, work);
  const Status released = (*writer)->release();
  if (done && !released && volume.claimed())
    done->left.push_back("the claim of " + std::string{name} +
                         " was not released: it ends by itself after some seconds");
  return done;
}

}  // namespace remora::volume::detail
