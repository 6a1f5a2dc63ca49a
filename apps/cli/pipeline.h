#pragma once

/// Bulk transfers: streams, each with many operations in flight on a queue of its own, from and
/// into memory registered once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <remora/remora.h>

#include "cli/checksum_thread.h"
#include "cli/download_target.h"
#include "cli/producer_source.h"
#include "cli/upload_source.h"

namespace remora::apps {

/// How a bulk transfer is cut up. Pieces × bytes has to be pinned over rdma: 2 MiB for one stream
/// and 4 MiB for several, well within the usual limit of 8 MiB.
inline constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;
inline constexpr std::size_t kPiecesInFlight = 8;
inline constexpr std::size_t kPiecesOfStreams = 16;  ///< of several streams together
/// The longest piece without bytes: one request of zeroes.
inline constexpr std::uint64_t kHoleBytes = std::uint64_t{4} << 20U;
/// A queue has a lane of its own up to that number.
inline constexpr unsigned kMaxStreams = kMaxLanes;

/// One transfer.
struct TransferJob {
  const Engine& engine;
  const Region& region;
  std::uint64_t offset = 0;  ///< place of the transfer's first byte in the region
  std::uint64_t first = 0;   ///< the bytes before it have been transferred by an earlier run
  std::uint64_t length = 0;  ///< of a download, with those before `first`; the most of an upload
  unsigned streams = 1;      ///< 1 … kMaxStreams; each but the first has a thread of its own
  bool visible = false;      ///< an upload ends when any lane of the session reads what it wrote
  ChecksumThread* checksum = nullptr;  ///< null: none
  /// Called by the calling thread with the number of bytes done, those before `first` included.
  std::function<void(std::uint64_t done)> progress{};
  /// Called by any stream for each piece that was transferred.
  std::function<void(const Piece& piece)> moved{};
};

/// The outcome of a transfer, also of one that failed.
struct Transferred {
  std::uint64_t bytes = 0;  ///< upload: acknowledged by the server; download: written
  Status status;
};

/// Writes what `source` gives. kLimitExceeded when that is more than the job's length: what came
/// before has been written then. On return nothing uses the source, and the checksum, if it was not
/// stopped, has all bytes.
Transferred upload(const TransferJob& job, UploadSource& source);

/// Hands the job's bytes to `target`.
Transferred download(const TransferJob& job, DownloadTarget& target);

/// Takes the next bytes of a download, in order. May block.
using Consumer = std::function<Status(std::span<const std::byte> bytes)>;

/// One stream, in order, without a checksum.
Transferred upload(const Engine& engine, const Region& region, std::uint64_t offset,
                   std::uint64_t limit_bytes, const Producer& producer);
Transferred download(const Engine& engine, const Region& region, std::uint64_t offset,
                     std::uint64_t length, const Consumer& consumer);

}  // namespace remora::apps
