#pragma once

/// Bulk transfers: many operations in flight on one queue, from and into memory registered once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <remora/remora.h>

namespace remora::apps {

/// How a bulk transfer is cut up. The product is what has to be pinned over rdma: 2 MiB, well
/// within the usual limit of 8 MiB.
inline constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;
inline constexpr std::size_t kPiecesInFlight = 8;

/// Gives the next bytes of an upload; 0 ends it.
struct Producer {
  std::function<Result<std::size_t>(std::span<std::byte> into)> read;
  /// Whether read() will not block. Before it does, everything in flight is completed.
  std::function<bool()> ready;
};
/// Takes the next bytes of a download, in order. May block.
using Consumer = std::function<Status(std::span<const std::byte> bytes)>;

/// The outcome of a transfer, also of one that failed.
struct Transferred {
  std::uint64_t bytes = 0;  ///< upload: acknowledged by the server; download: consumed
  Status status;
};

/// Writes what `producer` gives from `offset` on. kLimitExceeded when that is more than
/// `limit_bytes`: what came before has been written then.
Transferred upload(const Engine& engine, const Region& region, std::uint64_t offset,
                   std::uint64_t limit_bytes, const Producer& producer,
                   const std::function<void(std::uint64_t)>& progress);

/// Hands `length` bytes from `offset` on to `consumer`.
Transferred download(const Engine& engine, const Region& region, std::uint64_t offset,
                     std::uint64_t length, const Consumer& consumer);

}  // namespace remora::apps
