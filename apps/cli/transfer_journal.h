#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include <remora/mutex.h>

#include "cli/checksum.h"
#include "cli/command.h"
#include "cli/descriptor.h"
#include "cli/pipeline.h"

namespace remora::apps {

/// A journal has a digest for each multiple of this number, which no piece crosses.
inline constexpr std::uint64_t kCheckpointBytes = std::uint64_t{16} << 20U;

/// The record of an interrupted transfer for `--resume`: a file of lines, each a JSON object.
///
/// | line | contents |
/// |---|---|
/// | first | `names` of open(); `identity`: values that must be the same for a run to continue |
/// | each other | `done`: bytes transferred from the first one on; `digest`: their checksum |
///
/// The last complete line counts, so that a process may end at any byte. The file is in
/// $REMORA_STATE_DIR, $XDG_STATE_HOME/remora or ~/.local/state/remora, named by the checksum of
/// `names`, and locked while the transfer runs. moved() and summed() are thread-safe.
class TransferJournal {
 public:
  /// The state that an earlier run has left.
  struct Left {
    Json identity;
    std::uint64_t done = 0;
    std::string digest{};
  };

  /// `names` distinguishes this transfer from others. Fails if there is no folder for the journal,
  /// or while another process runs the same transfer.
  static tl::expected<std::unique_ptr<TransferJournal>, Failure> open(const Json& names);

  [[nodiscard]] const std::optional<Left>& left() const noexcept { return left_; }
  /// A clause that says why the state that was left does not fit `identity`; empty: it does.
  [[nodiscard]] std::string mismatch(const Json& identity) const;
  /// Continues from left()->done.
  void go_on();
  /// Drops the state that was left, and begins at the first byte.
  tl::expected<void, Failure> begin(const Json& identity);

  /// A piece was transferred.
  void moved(const Piece& piece) REMORA_EXCLUDES(mutex_);
  /// The bytes before `end`, a multiple of kCheckpointBytes, have this digest.
  void summed(std::uint64_t end, const std::string& digest) REMORA_EXCLUDES(mutex_);
  /// The offset from which the next run would continue.
  [[nodiscard]] std::uint64_t done() REMORA_EXCLUDES(mutex_);
  /// The transfer is complete, or cannot continue.
  void remove() noexcept;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  TransferJournal(Descriptor file, std::string path, Json names)
      : file_{std::move(file)},
        path_{std::move(path)},
        names_(std::move(names)) {}  // braces would make an array of it
  void load();
  /// Returns errno, or 0.
  int append(const Json& line);
  void write_reached() REMORA_REQUIRES(mutex_);

  Descriptor file_;
  std::string path_;
  Json names_;
  std::optional<Left> left_;
  detail::Mutex mutex_;
  std::uint64_t whole_ REMORA_GUARDED_BY(mutex_) = 0;  ///< all bytes before it were transferred
  std::map<std::uint64_t, std::uint64_t> apart_
      REMORA_GUARDED_BY(mutex_);  ///< begin -> end: others
  struct Digest {
    std::uint64_t end;
    std::string text;
  };
  std::deque<Digest> digests_ REMORA_GUARDED_BY(mutex_);  ///< those not written yet
  std::uint64_t written_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::apps
