#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include <remora/result.h>

#include "base/processors.h"

struct hwloc_topology;

namespace remora::detail {

/// The processors that this process may use, and the memory nodes to which they belong. Immutable,
/// and so thread-safe.
class Machine {
 public:
  /// The machine of this process, without the processors that the thread's affinity or the cgroup
  /// excludes. Errors: kSystem.
  static Result<Machine> here();
  /// For tests: hwloc's description of a machine, and the processors of it that may be used (empty:
  /// all).
  static Result<Machine> synthetic(const char* description, const Processors& allowed = {});

  [[nodiscard]] std::size_t node_count() const noexcept;
  [[nodiscard]] const Processors& processors() const noexcept { return processors_; }
  [[nodiscard]] Processors processors_of(unsigned node) const;
  [[nodiscard]] std::optional<unsigned> node_of(unsigned processor) const noexcept;
  /// The node of the processor on which the calling thread ran last.
  [[nodiscard]] std::optional<unsigned> node_of_this_thread() const noexcept;

  /// Binds the calling thread. False: the system refused; the thread runs as before.
  bool bind_thread(const Processors& processors) const noexcept;
  /// Asks the kernel to take pages of `bytes` that are touched from now on from `node`, while that
  /// has free memory. False: the system refused.
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

}  // namespace remora::detail
