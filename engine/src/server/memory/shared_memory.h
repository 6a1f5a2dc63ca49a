#pragma once

/// A shared mapping of a memfd, sealed against every change of its size.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>

#include <remora/config/server_config.h>
#include <remora/result.h>

#include "base/placement.h"
#include "base/unique_fd.h"

namespace remora::detail {

/// Memory is populated in steps, between which the caller may end it.
struct PopulateSteps {
  static constexpr std::uint64_t kStepBytes = 64ULL << 20U;
  /// More threads than these wait for the memory, not for a processor.
  static constexpr std::size_t kMaxThreads = 16;
  std::stop_token stop{};
  /// In the caller's thread, before each step of its own, and after the last: how many bytes are
  /// populated.
  std::function<void(std::uint64_t done_bytes)> on_step{};
  /// The caller's own thread counts.
  std::size_t threads_max = 1;
  /// A thread for each so many bytes at most: less is populated before another thread begins.
  std::uint64_t thread_bytes = 512ULL << 20U;
};

/// Owns the memfd and the mapping. Not thread-safe.
class SharedMemory {
 public:
  /// `core_dump`: core dumps of this process contain it. `populate`: touch every page now. The
  /// pages come from the memory node that `placement` names, if it names one and while that node
  /// has free pages. `address`: where to map it, if that part of the address space is free; 0:
  /// anywhere. Errors: kOutOfMemory, kSystem; kCancelled (steps.stop).
  static Result<SharedMemory> create(const char* name, std::uint64_t size_bytes,
                                     config::HugePages huge_pages, bool populate,
                                     const Placement& placement = {},
                                     const PopulateSteps& steps = {}, bool core_dump = false,
                                     std::uint64_t address = 0);
  /// Memory that create() of another process has made: `size_bytes` long and, where that is said,
  /// of huge pages or not. Populates nothing. Errors: kProtocol: it is no such memory;
  /// kOutOfMemory.
  static Result<SharedMemory> adopt(UniqueFd fd, std::uint64_t size_bytes, std::optional<bool> huge,
                                    std::uint64_t address, bool core_dump);
  /// An address for create() that a later process most likely has free, too: away from where
  /// programs, libraries, heaps and stacks are mapped. Drawn at random.
  [[nodiscard]] static std::uint64_t lasting_address() noexcept;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool huge() const noexcept { return huge_; }
  /// The length of one of its pages, where it has huge ones.
  [[nodiscard]] std::uint64_t page_bytes() const noexcept;
  /// Gives the pages of a part back to the system; they read as zero afterwards.
  Status punch(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept;
  /// By several threads, which run where `placement` says. Errors: kOutOfMemory, kSystem;
  /// kCancelled (steps.stop; populated pages stay).
  Status populate(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                  const PopulateSteps& steps = {}, const Placement& placement = {}) const;

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes, bool huge) noexcept
      : fd_{std::move(fd)}, bytes_{bytes}, huge_{huge} {}
  UniqueFd fd_;
  std::span<std::byte> bytes_;
  bool huge_;
};

/// Memory that this process may still take, as the machine says; 0 when it does not.
[[nodiscard]] std::uint64_t available_memory_bytes();

}  // namespace remora::detail
