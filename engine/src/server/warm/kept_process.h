#pragma once

/// A process that has memory of the server mapped (shm), as a later process of the server sees it.

#include <cstdint>

namespace remora::detail {

/// The start time of a process, in the kernel's units, so that a reused process id is not taken for
/// the same process. 0: not known. Source: proc(5), /proc/PID/stat.
[[nodiscard]] std::uint64_t process_began(std::uint64_t process_id) noexcept;

/// The PID namespace of this process: in another one a process id names another process. 0: not
/// known.
[[nodiscard]] std::uint64_t process_namespace() noexcept;

enum class ProcessState : std::uint8_t {
  kGone,
  kRunning,  ///< also if /proc does not show it
  kStopped,  ///< by a signal or a debugger: it may continue at any time
};
/// `began`: from process_began(). A process id of 0 gives kGone.
[[nodiscard]] ProcessState state_of_process(std::uint64_t process_id, std::uint64_t began) noexcept;

}  // namespace remora::detail
