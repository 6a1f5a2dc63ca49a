#pragma once

/// As many descriptors as the clients that a configuration admits need.

#include <remora/config/server_config.h>

namespace remora::apps {

/// Raises this process's limit of open files to what it may be (`ulimit -Hn`): the usual soft limit
/// of 1,024 is for programs that call select(). Warns where that is too little for
/// all the clients that `limits` let in, each with one lane.
void raise_descriptor_limit(const config::Limits& limits);

}  // namespace remora::apps
