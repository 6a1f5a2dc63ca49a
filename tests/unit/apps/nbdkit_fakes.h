#pragma once

/// Stand-ins for the functions of libremora and of nbdkit that the plugin of nbdkit calls: a test
/// says how they fail, and sees what was asked for.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <remora/remora_c.h>

namespace remora::test {

struct NbdkitFakes {
  // The region. Each call of these is an event: "write", "zero", "settled".
  std::function<int(remora_error*)> write = [](remora_error* /*error*/) { return REMORA_OK; };
  std::function<int()> settled = [] { return REMORA_OK; };
  std::atomic<int> connected{1};
  std::vector<std::uint64_t> zeroed;   ///< lengths
  std::uint64_t connect_for_ns = ~0U;  ///< of the engine that was opened last

  // The mirror: one group, of two copies. A repair may run in any thread.
  std::atomic<int> copies{2};
  std::function<int(const remora_volume_repair_options&, remora_volume_repair_report*)> repair;
  remora_volume_handler on_event = nullptr;
  void* event_context = nullptr;

  // The queue.
  std::deque<int> submits;  ///< results of the next submits; then all succeed
  int submit_count = 0;
  int wait_code = REMORA_OK;
  bool takes = true;  ///< false: no operation is taken
  std::vector<std::uint64_t> filled;
  std::vector<std::uint64_t> in_flight;

  // nbdkit.
  std::function<int()> nanosleep = [] { return 0; };  ///< -1: the client has gone
  int error = 0;                                      ///< of nbdkit_set_error()

  void add_event(const std::string& event);
  [[nodiscard]] std::vector<std::string> events();
  void add_line(std::string line);
  /// Of nbdkit's log: errors and debug messages.
  [[nodiscard]] std::vector<std::string> lines();

 private:
  std::mutex mutex_;
  std::vector<std::string> events_;
  std::vector<std::string> lines_;
};

/// What the functions use: set for the time of a test.
extern NbdkitFakes* fakes;

}  // namespace remora::test
