#pragma once

/// Fork safety: pinned pages must not become copy-on-write under the NIC.
///
/// In a child, every object of the parent answers kClosed with Reason::kForked, and its destructor
/// does nothing. Posting, polling and arming are not checked: docs/thread-safety.md.

#include <remora/result.h>
#include <remora/verbs/provider.h>

namespace remora::verbs {

/// Does nothing if the kernel copies pinned pages for a child (5.12 and later). Otherwise it makes
/// later `fork()` calls safe for registered memory. Call it before the first registration of the
/// process, from any thread; the first call decides, later ones repeat its answer. A child must
/// still not use the parent's verbs objects.
///
/// Errors: kProvider with EINVAL when memory was registered before; kProvider (errno kept).
/// Source: ibv_fork_init(3).
Status initialize_fork_safety(const Provider& provider = Provider::system());

}  // namespace remora::verbs
