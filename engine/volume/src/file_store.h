#pragma once

/// A MetadataStore in a file, for the processes of one host.

#include <chrono>
#include <memory>
#include <string>

#include <remora/volume/metadata_store.h>

#include "file_contents.h"

namespace remora::volume {

/// The file is replaced by rename(2), so that a reader sees one revision. A change holds flock(2)
/// of "PATH.lock" and is on the disk when it is acknowledged. Leases count CLOCK_BOOTTIME, and end
/// with the boot of the host. Network file systems are refused by no check: their flock and rename
/// do not give what this needs.
class FileStore final : public MetadataStore {
 public:
  explicit FileStore(std::string path) : path_{std::move(path)} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override;
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override;
  Result<Committed> commit(const Transaction& transaction, std::chrono::nanoseconds limit) override;
  Result<LeaseId> grant_lease(std::chrono::seconds lifetime,
                              std::chrono::nanoseconds limit) override;
  Status keep_alive(LeaseId lease, std::chrono::nanoseconds limit) override;
  Status revoke(LeaseId lease, std::chrono::nanoseconds limit) override;
  [[nodiscard]] std::string name() const override { return "file " + path_; }

 private:
  /// Without a lock: the file is of one revision at any time. A file that does not exist is empty.
  [[nodiscard]] Result<FileContents> load() const;
  /// `replaced`: the new contents are in their place, also if an error follows.
  Status save(const FileContents& contents, bool& replaced) const;
  /// Calls `change` with the contents under the lock; saves them if it returns true.
  template <typename F>
  Status locked(std::chrono::nanoseconds limit, bool& replaced, const F& change);

  const std::string path_;
};

}  // namespace remora::volume
