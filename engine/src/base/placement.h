#pragma once

/// Where the engine's own threads run and its memory lies, on machines where that matters.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

struct hwloc_topology;

namespace remora::detail {

/// Numbers of processors, as the system counts them; ascending, each once.
using Processors = std::vector<unsigned>;

/// Reads "0-3,8". Errors: kInvalidArgument (the part that is wrong is the subject).
Result<Processors> parse_processors(std::string_view text);
/// Writes "0-3,8".
std::string to_text(const Processors& processors);

/// The processors that this process may use and the memory nodes they belong to. Immutable.
class Machine {
 public:
  /// This machine, but for what affinity and cgroup keep from this process. Errors: kSystem.
  static Result<Machine> here();
  /// For tests: hwloc's description of a machine, and what of it may be used (empty: all).
  static Result<Machine> synthetic(const char* description, const Processors& allowed = {});

  [[nodiscard]] std::size_t node_count() const noexcept;
  [[nodiscard]] const Processors& processors() const noexcept { return processors_; }
  [[nodiscard]] Processors processors_of(unsigned node) const;
  [[nodiscard]] std::optional<unsigned> node_of(unsigned processor) const noexcept;
  /// Where the calling thread ran last.
  [[nodiscard]] std::optional<unsigned> node_of_this_thread() const noexcept;

  /// For the calling thread. Failures are the machine's wishes not met, no errors: false.
  bool bind_thread(const Processors& processors) const noexcept;
  /// Pages of `bytes` that are touched from now on come from `node` while it has any.
  bool prefer(unsigned node, std::span<std::byte> bytes) const noexcept;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const noexcept;
  };
  using Topology = std::unique_ptr<hwloc_topology, Destroy>;
  static Result<Topology> make();
  static Result<Machine> load(Topology topology);
  explicit Machine(Topology topology);

  Topology topology_;
  Processors processors_;
};

/// The memory node of an RDMA device, as sysfs tells it; nothing where it tells none. Of no name:
/// that of all devices there are, if it is the same.
std::optional<unsigned> device_node(std::string_view device,
                                    const std::filesystem::path& root = "/sys/class/infiniband");

/// Where a thread was bound before it was borrowed.
struct ThreadBinding {
  bool known = false;
  cpu_set_t set{};
};

/// The processors and the memory node chosen for one engine. Thread-safe; a default one does
/// nothing.
class Placement {
 public:
  Placement() = default;
  /// `text`: "none", "auto" or processors ("0-3,8"); `device` as EngineOptions::device. Loads the
  /// machine only where there is something to choose. Logs the choice at level debug.
  /// Errors: kInvalidArgument (text; processors this process may not use), kSystem.
  static Result<Placement> create(std::string_view text, std::string_view device);
  /// The choice itself. `device_node`: of the device that will be used, if known; `thread_node`: of
  /// the thread that asks. Errors: kInvalidArgument.
  static Result<Placement> choose(std::string_view text, std::shared_ptr<const Machine> machine,
                                  std::optional<unsigned> device_node,
                                  std::optional<unsigned> thread_node);

  /// Where the engine's threads run; empty: anywhere.
  [[nodiscard]] const Processors& processors() const noexcept { return processors_; }
  /// Where slots lie; nothing: with the thread that makes them, or no choice at all.
  [[nodiscard]] std::optional<unsigned> memory_node() const noexcept { return memory_node_; }

  /// Binds the calling thread, one of the engine's own. False: it runs where it did.
  bool bind_thread() const noexcept;
  /// The calling thread's processors until release(), for threads that work for the engine for a
  /// while.
  [[nodiscard]] ThreadBinding borrow_thread() const noexcept;
  void release_thread(const ThreadBinding& before) const noexcept;
  /// Before they are touched.
  void place(std::span<std::byte> bytes) const noexcept;

  /// One line for the log.
  [[nodiscard]] std::string to_string() const;

 private:
  std::shared_ptr<const Machine> machine_;  ///< null: nothing to choose
  Processors processors_;
  std::optional<unsigned> memory_node_;
};

}  // namespace remora::detail
