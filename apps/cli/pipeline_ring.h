#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include <remora/remora.h>

#include "cli/opened_store.h"
#include "cli/store_queue.h"

namespace remora::apps {

/// The registered memory of one stream, in pieces, and the queue for them. A piece's number is the
/// tag of its operation.
class PipelineRing {
 public:
  /// Errors: kOutOfMemory; those of Engine::register_memory() and OpenedStore::queue().
  static Result<PipelineRing> open(const OpenedStore& store, std::size_t depth);

  [[nodiscard]] StoreQueue& queue() noexcept { return *queue_; }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::span<std::byte> piece(std::size_t index) noexcept;
  Status write(std::uint64_t to, std::size_t index, std::size_t length);
  Status write_zeroes(std::uint64_t to, std::size_t index, std::uint64_t length);
  Status read(std::uint64_t from, std::size_t index, std::size_t length);

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept { std::free(bytes); }  // NOLINT: aligned_alloc
  };
  using Storage = std::unique_ptr<std::byte, Free>;

  PipelineRing(Storage storage, RegisteredMemory memory, std::unique_ptr<StoreQueue> queue,
               std::size_t depth)
      : storage_{std::move(storage)},
        memory_{std::move(memory)},
        queue_{std::move(queue)},
        depth_{depth} {}

  // In this order: the queue waits for operations in flight before their memory is destroyed.
  Storage storage_;
  RegisteredMemory memory_;
  std::unique_ptr<StoreQueue> queue_;
  std::size_t depth_;
};

}  // namespace remora::apps
