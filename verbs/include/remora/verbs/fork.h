#pragma once

/// Fork safety: pinned pages must not become copy-on-write under the NIC.

#include <remora/result.h>
#include <remora/verbs/provider.h>

namespace remora::verbs {

/// Makes later `fork()` calls safe for registered memory. Call it before the first registration of
/// the process, from any thread; the first call decides, later ones repeat its answer. A child
/// must still not use the parent's verbs objects: start helpers by fork and exec.
///
/// Errors: kProvider with EINVAL when memory was registered before; kProvider (errno kept).
/// Source: ibv_fork_init(3).
Status initialize_fork_safety(const Provider& provider = Provider::system());

}  // namespace remora::verbs
