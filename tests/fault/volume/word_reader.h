#pragma once

/// A client that reads the words of a mirror, and notes what it saw in the page of their history.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include <remora/engine/buffer.h>
#include <remora/result.h>

#include "fault/history.h"

namespace remora::fault {

/// Reads one word after the other in a thread of its own, until it is destroyed. Thread-safe.
class WordReader {
 public:
  /// Reads 8 bytes of the group.
  using Read = std::function<Status(std::uint64_t offset_bytes, const Target& into)>;

  /// `page` is borrowed. `thread`: the number of this client in the history.
  WordReader(Read read, LoadPage& page, std::uint32_t thread, std::chrono::microseconds pause);
  ~WordReader();
  WordReader(const WordReader&) = delete;
  WordReader& operator=(const WordReader&) = delete;

  void stop();
  /// Reads that have ended so far, and those of them that were ok.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t good() const noexcept { return good_; }

 private:
  void work();

  const Read read_;
  LoadPage& page_;
  const std::uint32_t number_;
  const std::chrono::microseconds pause_;
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> good_{0};
  std::thread thread_;
};

}  // namespace remora::fault
