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

/// The digests in a journal are those of each multiple of it, which no piece goes across.
inline constexpr std::uint64_t kCheckpointBytes = std::uint64_t{16} << 20U;

/// What `--resume` knows of a transfer that was interrupted: a file of lines, each a JSON object.
///
/// | line | contents |
/// |---|---|
/// | first | `names` as given to open(), and `identity`: what has to be the same for a run to go on
/// | | each other | `done`: bytes transferred from the first one on; `digest`: their checksum |
///
/// The last whole line counts, so that a process may end at any byte. The file is in
/// $REMORA_STATE_DIR, $XDG_STATE_HOME/remora or ~/.local/state/remora, named by the checksum of
/// `names`, and locked while the transfer runs. moved() and summed() are thread-safe.
class TransferJournal {
 public:
  /// What an earlier run has left.
  struct Left {
    Json identity;
    std::uint64_t done = 0;
    std::string digest{};
  };

  /// `names`: what tells this transfer from others. Fails where there is no folder for it, and
  /// while another process has the same transfer under way.
  static tl::expected<std::unique_ptr<TransferJournal>, Failure> open(const Json& names);

  [[nodiscard]] const std::optional<Left>& left() const noexcept { return left_; }
  /// A clause that says why what was left does not fit to `identity`; empty: it does.
  [[nodiscard]] std::string mismatch(const Json& identity) const;
  /// Goes on from left()->done.
  void go_on();
  /// Forgets what was left, and begins at the first byte.
  tl::expected<void, Failure> begin(const Json& identity);

  /// A piece was transferred.
  void moved(const Piece& piece) REMORA_EXCLUDES(mutex_);
  /// The bytes before `end`, a multiple of kCheckpointBytes, have this digest.
  void summed(std::uint64_t end, const std::string& digest) REMORA_EXCLUDES(mutex_);
  /// The bytes from which the next run would go on.
  [[nodiscard]] std::uint64_t done() REMORA_EXCLUDES(mutex_);
  /// The transfer is complete, or cannot go on.
  void remove() noexcept;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  TransferJournal(Descriptor file, std::string path, Json names)
      : file_{std::move(file)},
        path_{std::move(path)},
        names_(std::move(names)) {}  // braces would make an array of it
  void load();
  /// errno, or 0.
  int append(const Json& line);
  void write_reached() REMORA_REQUIRES(mutex_);

  Descriptor file_;
  std::string path_;
  Json names_;
  std::optional<Left> left_;
  detail::Mutex mutex_;
  std::uint64_t whole_ REMORA_GUARDED_BY(mutex_) = 0;  ///< every byte before it was transferred
  std::map<std::uint64_t, std::uint64_t> apart_ REMORA_GUARDED_BY(mutex_);  ///< begin, end: others
  struct Digest {
    std::uint64_t end;
    std::string text;
  };
  std::deque<Digest> digests_ REMORA_GUARDED_BY(mutex_);  ///< that are not written yet
  std::uint64_t written_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::apps
