#pragma once

/// Everything of remora::verbs.

#include <remora/verbs/access.h>
#include <remora/verbs/address.h>
#include <remora/verbs/batch.h>
#include <remora/verbs/completion.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/connector.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/fork.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/listener.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/provider.h>
#include <remora/verbs/queue_pair.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/teardown.h>
#include <remora/verbs/transport.h>
