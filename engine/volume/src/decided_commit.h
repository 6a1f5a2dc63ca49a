#pragma once

/// A transaction whose outcome is known at the end.

#include <cstddef>

#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/metadata_store.h>

namespace remora::volume {

/// Commits `transaction` until it is known whether it was applied: after an unknown outcome it is
/// sent again. The first change decides: each value has a nonce, so that no other client writes it.
/// False: it was refused. Errors: those of the store, which was asked for `kDecideRounds` times its
/// limit; the transaction may still apply then.
Result<bool> commit_decided(const Cluster& cluster, const Transaction& transaction);

inline constexpr int kDecideRounds = 3;

}  // namespace remora::volume
