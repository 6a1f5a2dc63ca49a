#pragma once

/// The parts that `remora put` and `remora get` share: options, streams, --resume, --verify, the
/// report.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include <remora/remora.h>

#include "cli/checksum.h"
#include "cli/checksum_thread.h"
#include "cli/command.h"
#include "cli/opened_store.h"
#include "cli/transfer_journal.h"

namespace remora::apps {

struct TransferOptions {
  std::string uri;
  std::string file;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  std::optional<unsigned> streams;
  ChecksumKind checksum = ChecksumKind::kSha256;
  bool resume = false;
  bool verify = false;
  bool dense = false;  ///< get: zeroes are written, too
};

Outcome put(const Globals& globals, const TransferOptions& options);
Outcome get(const Globals& globals, const TransferOptions& options);

/// The number of streams for a file of this size: that of --streams, otherwise by the size.
[[nodiscard]] unsigned streams_for(const TransferOptions& options, std::uint64_t bytes) noexcept;

/// Options of an engine whose sessions have a lane for each stream.
[[nodiscard]] EngineOptions engine_for_streams(unsigned streams);

/// "the 4096 bytes of region cache from offset 0".
[[nodiscard]] std::string bytes_of(const OpenedStore& store, std::uint64_t offset);
/// Empty if `offset` is in the store.
[[nodiscard]] std::string offset_fault(const OpenedStore& store, std::uint64_t offset);

/// Reads local bytes of the transfer; fewer than requested at their end.
using ReadAt = std::function<Result<std::size_t>(std::uint64_t at, std::span<std::byte> into)>;

/// The place where a run begins, and the checksum of the bytes before it.
struct TransferStart {
  std::unique_ptr<TransferJournal> journal{};  ///< null: without --resume
  std::uint64_t first = 0;
  std::optional<Checksum> sum{};  ///< empty: --checksum none
};
/// The parts of a journal's identity and names that both directions have. `file`: the local file.
/// `length`: of the whole transfer.
[[nodiscard]] Json journal_names(const TransferOptions& options, std::string_view command,
                                 const std::string& file);
[[nodiscard]] Json journal_identity(const TransferOptions& options, const OpenedStore& store,
                                    std::uint64_t length);
/// The start of a run without --resume. Fails if OpenSSL lacks the checksum.
tl::expected<TransferStart, Failure> start_anew(const TransferOptions& options);
/// The start of a run with --resume: where an earlier run was interrupted, if the identity and the
/// local bytes up to there are those of that run; otherwise at the first byte, with a note that
/// says why. `what`: "put disk.img".
tl::expected<TransferStart, Failure> start_resumed(const TransferOptions& options,
                                                   const Json& names, const Json& identity,
                                                   const ReadAt& read_at, const std::string& what);
/// Starts the thread that continues the checksum of `start`, which is moved from; null: --checksum
/// none.
Result<std::unique_ptr<ChecksumThread>> start_checksum(TransferStart& start);

/// The bytes that --verify compares.
struct Verification {
  const OpenedStore& store;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  unsigned streams = 1;
  ReadAt read_at{};  ///< empty: the digest is compared instead
  ChecksumKind checksum = ChecksumKind::kSha256;
  std::string digest{};
  std::string what{};    ///< "put disk.img"
  std::string remedy{};  ///< what to do if they differ
};
/// Reads the bytes of the store and compares them with the local ones.
tl::expected<void, Failure> verify(const Verification& job);

/// The result that a command prints at its end.
struct TransferReport {
  std::string_view verb;  ///< "put", "got"
  const OpenedStore& store;
  std::uint64_t bytes = 0;
  std::uint64_t resumed_bytes = 0;  ///< of these, by an earlier run
  std::uint64_t hole_bytes = 0;     ///< of these, in holes
  double seconds = 0;
  unsigned streams = 1;
  ChecksumKind checksum = ChecksumKind::kSha256;
  std::string digest{};
  bool verified = false;
};
void print_report(std::ostream& out, const Globals& globals, const TransferReport& report);

}  // namespace remora::apps
