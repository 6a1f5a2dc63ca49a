#pragma once

/// The protocol of rdma-core's rping, spoken from our side.
///
/// Each message is 16 bytes, big-endian: address (8), key (4), length (4) of a buffer. The client
/// names its source, the server reads it and answers with a message of no meaning ("go ahead"); the
/// client names its sink, the server writes what it has read there, up to its zero byte, and
/// answers again. Each side has one receive posted at any time.
/// Source: rdma-core, librdmacm/examples/rping.c, and rping(1).

#include <string>

#include "rxe_fixture.h"

namespace remora::test {

/// One round of the client. The receive with id 1 into offset 4096 must be posted; it is again.
testing::AssertionResult rping_round(verbs::Connection& connection, Rig& rig,
                                     const std::string& text, std::uint32_t length);
/// One round of the server, likewise.
testing::AssertionResult rping_serve_round(verbs::Connection& connection, Rig& rig,
                                           std::uint32_t length);

}  // namespace remora::test
