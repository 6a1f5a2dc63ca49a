#pragma once

/// Bulk transfers: streams, each with many operations in flight on a queue of its own, from and
/// into memory registered once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include <remora/remora.h>

#include "cli/checksum_thread.h"
#include "cli/download_target.h"
#include "cli/producer_source.h"
#include "cli/upload_source.h"

namespace remora::apps {

class OpenedStore;

/// The pieces of a bulk transfer. Over rdma, pieces × bytes must be pinned: 2 MiB for one stream
/// and 4 MiB for several, well within the usual limit of 8 MiB. A volume has at least as many
/// pieces in flight as keep all servers of a row of stripe units busy, up to kPiecesMax.
inline constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;
inline constexpr std::size_t kPiecesInFlight = 8;
inline constexpr std::size_t kPiecesOfStreams = 16;  ///< of several streams together
inline constexpr std::size_t kPiecesMax = 64;        ///< 16 MiB
/// The longest piece without bytes: one request of zeroes.
inline constexpr std::uint64_t kHoleBytes = std::uint64_t{4} << 20U;
/// Up to this number each queue has a lane of its own.
inline constexpr unsigned kMaxStreams = kMaxLanes;

/// One transfer.
struct TransferJob {
  const OpenedStore& store;
  std::uint64_t offset = 0;  ///< offset of the transfer's first byte in the store
  std::uint64_t first = 0;   ///< an earlier run has transferred the bytes before it
  std::uint64_t length = 0;  ///< of a download, with those before `first`; the most of an upload
  unsigned streams = 1;      ///< 1 … kMaxStreams; each but the first has a thread of its own
  bool visible = false;      ///< an upload ends when any lane of the session can read its bytes
  ChecksumThread* checksum = nullptr;  ///< null: none
  /// The calling thread calls it with the number of bytes done, including those before `first`.
  std::function<void(std::uint64_t done)> progress{};
  /// Any stream calls it for each piece that was transferred.
  std::function<void(const Piece& piece)> moved{};
};

/// The outcome of a transfer, also of one that failed.
struct Transferred {
  std::uint64_t bytes = 0;  ///< upload: acknowledged by the server; download: written
  Status status;
};

/// The operation of upload()'s kLimitExceeded.
inline constexpr std::string_view kBeyondRoom = "write beyond the room";

/// Writes the bytes of `source`. kLimitExceeded if they are more than the job's length: the bytes
/// before have been written then. On return no thread uses the source, and the checksum, if it was
/// not stopped, has all bytes.
Transferred upload(const TransferJob& job, UploadSource& source);

/// Passes the job's bytes to `target`.
Transferred download(const TransferJob& job, DownloadTarget& target);

/// Takes the next bytes of a download, in order. May block.
using Consumer = std::function<Status(std::span<const std::byte> bytes)>;

/// One stream, in order, without a checksum.
Transferred upload(const OpenedStore& store, std::uint64_t offset, std::uint64_t limit_bytes,
                   const Producer& producer);
Transferred download(const OpenedStore& store, std::uint64_t offset, std::uint64_t length,
                     const Consumer& consumer);

}  // namespace remora::apps
