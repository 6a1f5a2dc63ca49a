#pragma once

/// Memory servers that form a cluster, for programs that measure volumes.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <remora/remora.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>

#include "jobs.h"
#include "support/runtime_dir.h"

namespace remora::bench {

/// Servers "s0", "s1", ... over tcp, each in a process of its own with an empty pool, in failure
/// domains of their own. Their cluster keeps its records in a file. No server polls: all of them
/// share one processor.
class VolumeServers {
 public:
  /// Forks the servers onto the processor `core`: before this process has threads.
  VolumeServers(int count, std::uint64_t pool_bytes, int core);

  /// Registers all servers. Called once, after the constructor's caller has opened its engine.
  [[nodiscard]] volume::Cluster open(const Engine& engine) const;
  /// A region of `size_bytes` on server `index`, whose name is `name`.
  [[nodiscard]] Region create_region(const Engine& engine, std::size_t index,
                                     const std::string& name, std::uint64_t size_bytes) const;
  /// Ends the server of that name by SIGKILL. When this returns, the process has ended.
  void kill(std::string_view name);

 private:
  [[nodiscard]] std::string address(std::size_t index) const;

  std::uint64_t pool_bytes_;
  test::RuntimeDir folder_;
  std::vector<std::unique_ptr<ServerProcess>> processes_;  ///< null: it was killed
};

/// The value, or the end of the program with the text of the failure.
template <typename T>
T value_of(volume::Managed<T> managed) {
  if (!managed) give_up(managed.error().detail + ": " + managed.error().error.message());
  if constexpr (!std::is_void_v<T>) return std::move(*managed);
}

}  // namespace remora::bench
