#pragma once

/// A process that had memory of the server mapped (shm), as a later process of the server finds it.

#include <cstdint>

namespace remora::detail {

/// When the process was started, in the kernel's units, so that a process id which is used again is
/// not taken for the same process. 0: not known. Source: proc(5), /proc/PID/stat.
[[nodiscard]] std::uint64_t process_began(std::uint64_t process_id) noexcept;

/// Of this process: in another PID namespace a process id names another process. 0: not known.
[[nodiscard]] std::uint64_t process_namespace() noexcept;

enum class ProcessState : std::uint8_t {
  kGone,
  kRunning,  ///< also where /proc does not show it
  kStopped,  ///< by a signal or a debugger: it may go on at any time
};
/// `began`: of process_began(). With a process id of 0: kGone.
[[nodiscard]] ProcessState state_of_process(std::uint64_t process_id, std::uint64_t began) noexcept;

}  // namespace remora::detail
