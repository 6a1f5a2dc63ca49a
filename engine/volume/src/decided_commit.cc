#include "decided_commit.h"

namespace remora::volume {

Result<bool> commit_decided(const Cluster& cluster, const Transaction& transaction) {
  bool doubtful = false;
  Error last{Code::kTimedOut, "transaction of a cluster"};
  for (int round = 0; round < kDecideRounds; ++round) {
    const auto committed = cluster.store().commit(transaction, cluster.limit());
    if (!committed) {
      if (!doubtful) return committed.error();
      last = committed.error();
      continue;
    }
    if (committed->outcome == Outcome::kApplied) return true;
    if (committed->outcome == Outcome::kRefused && !doubtful) return false;
    if (committed->outcome == Outcome::kRefused) {
      // By the first one's effect, or by another client's change.
      const Change& first = transaction.changes.front();
      const auto now = get_one(cluster.store(), first.key, cluster.limit());
      if (!now) return now.error();
      return first.value ? *now && (*now)->value == *first.value : !*now;
    }
    doubtful = true;
    if (committed->cause) last = *committed->cause;
  }
  return last;
}

}  // namespace remora::volume
