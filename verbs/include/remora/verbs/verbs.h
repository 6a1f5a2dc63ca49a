#pragma once

/// Everything of remora::verbs.

// First: it checks the language version, before other headers are read. clang-format off
#include <remora/result.h>
// clang-format on

#include <remora/verbs/access.h>
#include <remora/verbs/address.h>
#include <remora/verbs/address_handle.h>
#include <remora/verbs/async_events.h>
#include <remora/verbs/batch.h>
#include <remora/verbs/chain.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/connector.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/endpoint.h>
#include <remora/verbs/extended_poll.h>
#include <remora/verbs/fork.h>
#include <remora/verbs/format.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/guid.h>
#include <remora/verbs/listener.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/memory_window.h>
#include <remora/verbs/mr_cache.h>
#include <remora/verbs/port_counters.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/provider.h>
#include <remora/verbs/queue_pair.h>
#include <remora/verbs/queue_pair_attributes.h>
#include <remora/verbs/receive_batch.h>
#include <remora/verbs/shared_receive_queue.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/teardown.h>
#include <remora/verbs/transport.h>
