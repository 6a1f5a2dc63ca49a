#pragma once

/// What each of the programs beside_* has of its own.

namespace remora::test {

/// Uses the program's own third parties. False: they do not work.
bool use_own();

}  // namespace remora::test
