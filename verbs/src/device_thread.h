#pragma once

/// The thread on which libibverbs lists the devices of the host. Internal.
///
/// libibverbs makes the object of a device when a list contains the device for the first time, in
/// the heap of the thread that requests that list. librdmacm before rdma-core 52 orders these
/// objects wrongly if they are 2 GiB or more apart, and then loses existing devices (cm_device.h).
/// With glibc the objects that one thread makes are in one heap, of 64 MiB.

#include <string_view>
#include <tuple>

namespace remora::verbs::detail {

/// Whether the librdmacm in a file of this name compares whole addresses. False: the name does not
/// tell.
[[nodiscard]] bool sorts_whole_addresses(std::string_view file_name) noexcept;
/// Whether the librdmacm of this process may compare parts of addresses.
[[nodiscard]] bool needs_device_thread() noexcept;

/// Runs `call(argument)` on the device thread of this process, and waits for its end. Runs it on
/// the caller's thread if there is no such thread: librdmacm needs none, no thread can be started,
/// the caller is in another network namespace, the process ends, or the host has no RDMA. errno is
/// passed to that thread and back. Thread-safe.
void run_on_device_thread(void (*call)(void*), void* argument) noexcept;

/// Runs `kCall` on the device thread.
template <auto kCall>
struct OnDeviceThread;
template <typename Answer, typename... Arguments, Answer (*kCall)(Arguments...)>
struct OnDeviceThread<kCall> {
  static Answer call(Arguments... arguments) {
    struct Frame {
      std::tuple<Arguments...> arguments;
      Answer answer;
    } frame{{arguments...}, {}};
    run_on_device_thread(
        [](void* given) {
          auto& of_caller = *static_cast<Frame*>(given);
          of_caller.answer = std::apply(kCall, of_caller.arguments);
        },
        &frame);
    return frame.answer;
  }
};

}  // namespace remora::verbs::detail
