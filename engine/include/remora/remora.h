#pragma once

/// Remora: the memory of other machines, in blocks, by one-sided RDMA.
///
/// The one header a user of the engine needs. Start with Engine (a client), or with
/// config::load_server() and Server.
/// engine/README.md shows both, and which page of engine/docs/ answers which question.

// First: it checks the language version, before other headers are read. clang-format off
#include <remora/result.h>  // IWYU pragma: export
// clang-format on

#include <remora/config/load.h>              // IWYU pragma: export
#include <remora/engine/administration.h>    // IWYU pragma: export
#include <remora/engine/async.h>             // IWYU pragma: export
#include <remora/engine/buffer.h>            // IWYU pragma: export
#include <remora/engine/callback_queue.h>    // IWYU pragma: export
#include <remora/engine/control.h>           // IWYU pragma: export
#include <remora/engine/descriptor_store.h>  // IWYU pragma: export
#include <remora/engine/engine.h>            // IWYU pragma: export
#include <remora/engine/executor.h>          // IWYU pragma: export
#include <remora/engine/lock.h>              // IWYU pragma: export
#include <remora/engine/log.h>               // IWYU pragma: export
#include <remora/engine/log_writer.h>        // IWYU pragma: export
#include <remora/engine/many.h>              // IWYU pragma: export
#include <remora/engine/queue.h>             // IWYU pragma: export
#include <remora/engine/region.h>            // IWYU pragma: export
#include <remora/engine/sealed_block.h>      // IWYU pragma: export
#include <remora/engine/sealed_pages.h>      // IWYU pragma: export
#include <remora/engine/server.h>            // IWYU pragma: export
#include <remora/engine/task.h>              // IWYU pragma: export
#include <remora/engine/types.h>             // IWYU pragma: export
#include <remora/engine/uri.h>               // IWYU pragma: export
#include <remora/result.h>                   // IWYU pragma: export
