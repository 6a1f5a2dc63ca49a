#pragma once

/// Raises the limit of descriptors for the clients that a configuration admits.

#include <remora/config/server_config.h>

namespace remora::apps {

/// Raises this process's limit of open files to the hard limit (`ulimit -Hn`): the usual soft limit
/// of 1,024 is for programs that call select(). Warns if that is too little for all the clients
/// that `limits` admit, each with one lane.
void raise_descriptor_limit(const config::Limits& limits);

}  // namespace remora::apps
