#pragma once

/// A shared mapping of a server's memory in a client.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::transport {

/// Unmapped with its last user.
class Mapping {
 public:
  /// `protection` as in mmap(2). Explicit huge pages are mapped as whole pages. Errors: kProtocol
  /// (without F_SEAL_SHRINK, or too short), kSystem, kOutOfMemory.
  static Result<std::shared_ptr<Mapping>> map(int descriptor, std::size_t size_bytes,
                                              int protection);
  /// `huge`: the file consists of explicit huge pages.
  Mapping(std::byte* address, std::size_t size_bytes, bool huge) noexcept
      : address_{address}, size_bytes_{size_bytes}, huge_{huge} {}
  /// Waits for one step of a thread that populates, at most kStepBytes.
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  /// A multiple of the page size; at least the requested size.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  static constexpr std::size_t kStepBytes = std::size_t{4} << 20U;
  static constexpr std::size_t kPopulatedAtOnceBytes = std::size_t{64} << 20U;
  /// The most threads of this process that populate at once; a further mapping starts none.
  static constexpr unsigned kMaxThreads = 4;

  /// Enters the pages in the page table of this process, as `how` says. Called once. `writes`: for
  /// writing. `at_once_bytes`: the bytes that are entered on return when `how` is kLazy. kLazy
  /// skips each step of kStepBytes in which the server does not have all pages, so it allocates no
  /// memory; kNow allocates them. Best effort: a page that is not entered faults at its first use.
  void populate(Populate how, bool writes,
                std::size_t at_once_bytes = kPopulatedAtOnceBytes) noexcept;
  /// Waits until no thread populates any more. For tests.
  void await_populated() noexcept;

 private:
  /// How to treat pages that the server does not have.
  enum class Missing : std::uint8_t { kLeave, kMake };
  void populate_range(std::size_t from, std::size_t to, int advice, Missing missing) noexcept;

  std::byte* address_;
  std::size_t size_bytes_;
  bool huge_;
  std::atomic<bool> stop_{false};
  std::thread populating_;
};

}  // namespace remora::transport
