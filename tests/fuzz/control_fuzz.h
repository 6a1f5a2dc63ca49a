#pragma once

/// The two halves of control_fuzz.

#include "script.h"

namespace remora::fuzz {

/// Up to four clients that say anything to a server.
void fuzz_server(const Script& script);
/// A server that says anything to a client.
void fuzz_client(const Script& script);

}  // namespace remora::fuzz
