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

/// Memory is populated in steps, between which the caller may stop it.
struct PopulateSteps {
  static constexpr std::uint64_t kStepBytes = 64ULL << 20U;
  /// The most threads; more would wait for the memory, not for a processor.
  static constexpr std::size_t kMaxThreads = 16;
  std::stop_token stop{};
  /// Called in the caller's thread, before each of its steps and after the last one, with the
  /// populated bytes.
  std::function<void(std::uint64_t done_bytes)> on_step{};
  /// The most threads, with the caller's.
  std::size_t threads_max = 1;
  /// A further thread starts only for another this many bytes.
  std::uint64_t thread_bytes = 512ULL << 20U;
};

/// Owns the memfd and the mapping. Not thread-safe.
class SharedMemory {
 public:
  /// `core_dump`: core dumps of this process contain the memory. `populate`: touch every page now.
  /// The pages come from the memory node that `placement` names, if any, while that node has free
  /// pages. `address`: map the memory there if the addresses are free; 0: anywhere. Errors:
  /// kOutOfMemory, kSystem; kCancelled (steps.stop).
  static Result<SharedMemory> create(const char* name, std::uint64_t size_bytes,
                                     config::HugePages huge_pages, bool populate,
                                     const Placement& placement = {},
                                     const PopulateSteps& steps = {}, bool core_dump = false,
                                     std::uint64_t address = 0);
  /// Maps memory that create() of another process has made: `size_bytes` long and, if that is
  /// given, with huge pages or without. Populates nothing. Errors: kProtocol: it is not such
  /// memory; kOutOfMemory.
  static Result<SharedMemory> adopt(UniqueFd fd, std::uint64_t size_bytes, std::optional<bool> huge,
                                    std::uint64_t address, bool core_dump);
  /// An address for create() that is probably free in a later process, too: away from the addresses
  /// of programs, libraries, heaps and stacks. Chosen at random.
  [[nodiscard]] static std::uint64_t lasting_address() noexcept;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool huge() const noexcept { return huge_; }
  /// The length of one of its pages, if it has huge ones.
  [[nodiscard]] std::uint64_t page_bytes() const noexcept;
  /// Gives the pages of a part back to the system; they read as zero afterwards.
  Status punch(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept;
  /// Populates a part by several threads, which run where `placement` says. Errors: kOutOfMemory,
  /// kSystem; kCancelled (steps.stop; populated pages stay).
  Status populate(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                  const PopulateSteps& steps = {}, const Placement& placement = {}) const;

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes, bool huge) noexcept
      : fd_{std::move(fd)}, bytes_{bytes}, huge_{huge} {}
  UniqueFd fd_;
  std::span<std::byte> bytes_;
  bool huge_;
};

/// Memory that this process may still use, as the machine reports; 0 if it does not report it.
[[nodiscard]] std::uint64_t available_memory_bytes();

}  // namespace remora::detail
