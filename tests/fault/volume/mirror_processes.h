#pragma once

/// Writers of mirrors in processes of their own, which a test kills and stops.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/volume/cluster.h>

#include "mirror_load.h"
#include "support/child.h"

namespace remora::fault {

/// The mirror of all these tests.
inline constexpr const char* kMirrorName = "disk";
/// How long a member may take, where no member stands still: a busy machine removes none.
inline constexpr std::chrono::milliseconds kMemberLimit{20'000};

/// The cluster "lab" at these endpoints of etcd, with commas between them.
[[nodiscard]] volume::Cluster mirror_cluster(
    const std::string& endpoints, std::chrono::nanoseconds limit = volume::Cluster::kLimit);
/// An engine that does not connect again to a server which is gone.
[[nodiscard]] Engine mirror_engine();

/// Helper "mirror-writer": claims the mirror and works on its first group.
///
/// | key | meaning |
/// |---|---|
/// | `store`, `transport` | endpoints of etcd; of the members |
/// | `page`, `session`, `seed`, `threads`, `words_only`, `pause_us`, `deadline_ms` | of the load |
/// | `steal=1` | the claim |
/// | `step`, `nth`, `action` | at that step (step_opener.h) it kills itself (`kill`), or says "at"
/// and waits for the line "go" (`hold`) | | `rebuild` | claims a Volume; at the line "repair" it
/// rebuilds members with that many bytes a second | | `store_limit_ms` | of each request to the
/// store |
///
/// Says "claimed", or "refused TEXT" and ends. At the line "finish" it says its report, releases
/// the claim and ends. A rebuild says "zones N" for each zone, and "repaired LEFT TEXT" at its end.
int mirror_writer(const test::HelperArguments& arguments);

/// A running "mirror-writer".
class MirrorWriterProcess {
 public:
  explicit MirrorWriterProcess(const std::vector<std::string>& words)
      : child_{"mirror-writer", words} {}

  /// Whether the next line begins with `word`; `rest` gets what follows.
  bool expect(const std::string& word, std::string* rest = nullptr);
  /// The claim is there, or the reason why not.
  bool claimed(std::string* why = nullptr);
  /// Waits until it stands at its step, in its claim or after it.
  bool at_step();
  void go() const { child_.write_line("go"); }
  void repair() const { child_.write_line("repair"); }
  void kill() { child_.kill(); }
  void pause() const { child_.pause(); }
  void resume() const { child_.send_signal(SIGCONT); }
  /// Waits for its end: 137 after SIGKILL.
  std::optional<int> wait() { return child_.wait(std::chrono::minutes{2}); }
  /// The report of a load that ends now, or has ended; nothing: none came.
  std::optional<MirrorLoadReport> finish();

 private:
  test::Child child_;
};

}  // namespace remora::fault
