#pragma once

namespace remora::apps {

/// Opens those of the descriptors 0, 1 and 2 that are closed, so that no socket or file gets their
/// numbers. Call it first in main(). They cannot be used: a read from standard input and a write to
/// the others fail with EBADF as before, so that lost output is still an error.
void open_closed_standard_streams() noexcept;

}  // namespace remora::apps
