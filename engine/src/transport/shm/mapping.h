#pragma once

/// A shared mapping of a server's memory in a client.

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>

#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::transport {

/// Unmapped with its last user.
class Mapping {
 public:
  /// `protection` as in mmap(2). Errors: kProtocol (without F_SEAL_SHRINK, or too short), kSystem,
  /// kOutOfMemory.
  static Result<std::shared_ptr<Mapping>> map(int descriptor, std::size_t size_bytes,
                                              int protection);
  Mapping(std::byte* address, std::size_t size_bytes) noexcept
      : address_{address}, size_bytes_{size_bytes} {}
  /// Waits for one step of a thread that populates, at most kStepBytes.
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* address() const noexcept { return address_; }

  static constexpr std::size_t kStepBytes = std::size_t{4} << 20U;
  static constexpr std::size_t kPopulatedAtOnceBytes = std::size_t{64} << 20U;

  /// Enters the pages in the page table of this process, as `how` says. The server has the pages
  /// already. Once. `writes`: for writing. `at_once_bytes`: of kLazy; so many are there when it
  /// returns. Best effort: what is not entered faults at its first use.
  void populate(Populate how, bool writes,
                std::size_t at_once_bytes = kPopulatedAtOnceBytes) noexcept;
  /// Waits until no thread populates any more. For tests.
  void await_populated() noexcept;

 private:
  void populate_range(std::size_t from, std::size_t to, int advice) noexcept;

  std::byte* address_;
  std::size_t size_bytes_;
  std::atomic<bool> stop_{false};
  std::thread populating_;
};

}  // namespace remora::transport
