#pragma once

/// The ids of a session's grants, and the data of these grants that notices need. They are kept for
/// a while after a grant has been closed, since its notices may still be on their way to the
/// application.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include <remora/engine/types.h>
#include <remora/mutex.h>

#include "transport/notice.h"

namespace remora::detail {

/// Changed by the worker, read by the control thread too. Thread-safe.
class GrantNames {
 public:
  struct NoticeRights {
    std::string region;
    std::uint64_t size_bytes = 0;
    Rights rights = Rights::kNone;
  };
  /// The id of the new grant. Ids are counted from 1 and never used again in a session.
  std::uint64_t add(NoticeRights rights);
  /// The highest id that add_as() accepts.
  static constexpr std::uint64_t kMaxNamedId = std::uint64_t{1} << 48U;
  /// Adds a grant of the previous process under its id. False: the session has or had a grant of
  /// this id, or the id is above kMaxNamedId.
  [[nodiscard]] bool add_as(std::uint64_t grant_id, NoticeRights rights);
  /// The client has this id from the previous process: no later grant of the session gets it,
  /// whether or not the client gets its own grant again. Does nothing for an id above kMaxNamedId.
  void avoid(std::uint64_t grant_id);
  /// The grant is closed. The last kMaxClosed closed grants are remembered.
  void close(std::uint64_t grant_id);
  /// Whether the session has or had a grant of that id.
  [[nodiscard]] bool was_granted(std::uint64_t grant_id) const;
  /// The region that the notice is about; an empty name: its grant was closed long ago. No value:
  /// the client has no right to send the notice.
  [[nodiscard]] std::optional<std::string> region_of(const transport::Notice& notice) const;
  /// Takes over the grants of a session that this session resumes.
  void take_over(GrantNames& before);

 private:
  static constexpr std::size_t kMaxClosed = 256;

  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, NoticeRights> rights_ REMORA_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> closed_ REMORA_GUARDED_BY(mutex_);  ///< of rights_, the oldest first
  std::uint64_t next_id_ REMORA_GUARDED_BY(mutex_) = 1;
};

}  // namespace remora::detail
