#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include <remora/remora.h>
#include <remora/volume/volume_queue.h>

namespace remora::apps {

/// The queue of a region or of a volume. One owner.
class StoreQueue {
 public:
  explicit StoreQueue(Queue queue) : queue_{std::move(queue)} {}
  explicit StoreQueue(volume::VolumeQueue queue) : queue_{std::move(queue)} {}

  /// Calls `work` with the queue itself: for loops that are compiled for both kinds.
  template <typename Work>
  decltype(auto) visit(const Work& work) {
    return std::visit(work, queue_);
  }

  // Each of these submits one operation, for which there must be room. Registered memory stays
  // registered until the completion: the volume posts parts of a long operation later.
  Status read(ByteOffset from, const Target& into, std::uint64_t tag) {
    return submit([&](auto& queue) { queue.read(from, into, tag); });
  }
  Status write(ByteOffset to, const Source& from, std::uint64_t tag) {
    return submit([&](auto& queue) { queue.write(to, from, tag); });
  }
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) {
    return submit([&](auto& queue) { queue.write_zeroes(at, length_bytes, tag); });
  }
  Status flush_visible(std::uint64_t tag) {
    return submit([&](auto& queue) { queue.flush_visible(tag); });
  }

  /// The operations whose completions have not been handed out yet.
  [[nodiscard]] std::size_t size() const noexcept {
    return std::visit([](const auto& queue) { return queue.size(); }, queue_);
  }
  /// Waits as the queue does, and calls `each(tag, status)` for each completion. Returns their
  /// number.
  template <typename Each>
  std::size_t wait(std::size_t at_least, const Each& each) {
    return visit([&](auto& queue) -> std::size_t {
      const auto found = queue.wait(at_least);
      for (const auto& completion : found)
        each(completion.tag(), completion.ok() ? ok_status() : Status{completion.error()});
      return found.size();
    });
  }

 private:
  template <typename Take>
  Status submit(const Take& take) {
    return visit([&](auto& queue) {
      take(queue);
      return queue.submit();
    });
  }

  std::variant<Queue, volume::VolumeQueue> queue_;
};

}  // namespace remora::apps
