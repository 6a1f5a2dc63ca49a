#pragma once

/// The choice of processors for the engine's threads, and of the memory node for its memory.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>

#include <remora/result.h>

#include "base/machine.h"
#include "base/processors.h"

namespace remora::detail {

/// The memory node of an RDMA device, from sysfs; nothing if sysfs does not name it. Without a
/// name: the node that all devices share, if there is one.
std::optional<unsigned> device_node(std::string_view device,
                                    const std::filesystem::path& root = "/sys/class/infiniband");

/// The binding of a thread before borrow_thread().
struct ThreadBinding {
  bool known = false;
  cpu_set_t set{};
};

/// The processors and the memory node chosen for one engine. Thread-safe; the functions of a
/// default-made one do nothing.
class Placement {
 public:
  Placement() = default;
  /// `text`: "none", "auto" or processors ("0-3,8"); `device` as EngineOptions::device. Loads the
  /// machine only where there is something to choose. Logs the choice at level debug.
  /// Errors: kInvalidArgument (text; processors this process may not use), kSystem.
  static Result<Placement> create(std::string_view text, std::string_view device);
  /// The choice that create() makes. `device_node`: the node of the device that will be used, if
  /// known; `thread_node`: that of the calling thread. Errors: kInvalidArgument.
  static Result<Placement> choose(std::string_view text, std::shared_ptr<const Machine> machine,
                                  std::optional<unsigned> device_node,
                                  std::optional<unsigned> thread_node);

  /// Processors of the engine's threads; empty: all.
  [[nodiscard]] const Processors& processors() const noexcept { return processors_; }
  /// Node of the slots. Nothing: the node of the thread that allocates them, or no choice at all.
  [[nodiscard]] std::optional<unsigned> memory_node() const noexcept { return memory_node_; }

  /// Binds the calling thread, which is one of the engine's own. False: it runs on the same
  /// processors as before.
  bool bind_thread() const noexcept;
  /// Binds the calling thread, which works for the engine for a while, until release_thread().
  [[nodiscard]] ThreadBinding borrow_thread() const noexcept;
  void release_thread(const ThreadBinding& before) const noexcept;
  /// Chooses the node of `bytes`, whose pages have not been touched yet.
  void place(std::span<std::byte> bytes) const noexcept;

  /// One line for the log.
  [[nodiscard]] std::string to_string() const;

 private:
  std::shared_ptr<const Machine> machine_;  ///< null: there is nothing to choose
  Processors processors_;
  std::optional<unsigned> memory_node_;
};

}  // namespace remora::detail
