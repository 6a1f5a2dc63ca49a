#include "file_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <remora/standard_descriptors.h>
#include <remora/system_file.h>
#include <remora/volume/records.h>

namespace remora::volume {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20U;
constexpr int kLockPauseMs = 2;

Error failed(std::string_view path) {
  const int number = errno;
  const Code code = number == EACCES || number == EPERM || number == EROFS ? Code::kPermissionDenied
                    : number == ENOENT || number == ENOTDIR                ? Code::kNotFound
                                                                           : Code::kSystem;
  return Error{code, "cluster file"}.with_subject(path).with_errno(number);
}

/// A descriptor that is closed with the object; with it goes its flock.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_{remora::detail::above_standard(fd)} {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// flock(2) has no time limit of its own.
Status lock(int fd, const std::string& path, std::chrono::nanoseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed(path);
    if (Clock::now() >= until)
      return Error{Code::kTimedOut, "lock of the cluster file"}.with_subject(path);
    ::poll(nullptr, 0, kLockPauseMs);
  }
  return ok_status();
}

bool write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(std::size_t(count));
  }
  return true;
}

Entry entry_of(const std::string& key, const FileEntry& entry) {
  return {key, entry.value, entry.revision};
}

}  // namespace

Result<FileContents> FileStore::load() const {
  const auto text = remora::detail::read_file(path_.c_str(), kFileBytesMax);
  if (!text && errno == ENOENT) return FileContents{};
  if (!text) return failed(path_);
  auto contents = FileContents::parse(path_, *text);
  if (contents) contents->expire(boot_time_ms(), host_boot_id());
  return contents;
}

Status FileStore::save(const FileContents& contents, bool& replaced) const {
  const std::string text = contents.to_json();
  if (text.size() > kFileBytesMax)
    return Error{Code::kLimitExceeded, "cluster file"}.with_subject(path_).with_limit(
        text.size(), kFileBytesMax);
  const std::string temporary = path_ + ".new";
  {
    const Descriptor file{
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.get() < 0 || !write_all(file.get(), text) || ::fsync(file.get()) != 0) {
      const Error error = failed(temporary);
      if (file.get() >= 0) ::unlink(temporary.c_str());
      return error;
    }
  }
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return failed(path_);
  replaced = true;
  const std::string folder = path_.substr(0, std::max<std::size_t>(path_.rfind('/'), 1));
  const Descriptor directory{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) return failed(folder);
  return ok_status();
}

template <typename F>
Status FileStore::locked(std::chrono::nanoseconds limit, bool& replaced, const F& change) {
  const std::string lock_path = path_ + ".lock";
  const Descriptor held{::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (held.get() < 0) return failed(lock_path);
  if (const Status locked = lock(held.get(), path_, limit); !locked) return locked;
  auto contents = load();
  if (!contents) return contents.error();
  Result<bool> changed = change(*contents);
  if (!changed) return changed.error();
  return *changed ? save(*contents, replaced) : ok_status();
}

Result<Snapshot> FileStore::get(std::span<const std::string> keys,
                                std::chrono::nanoseconds /*limit*/) {
  const auto contents = load();
  if (!contents) return contents.error();
  Snapshot snapshot{contents->revision, {}};
  for (const std::string& key : keys)
    if (const auto found = contents->entries.find(key); found != contents->entries.end())
      snapshot.entries.push_back(entry_of(found->first, found->second));
  std::sort(snapshot.entries.begin(), snapshot.entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  return snapshot;
}

Result<Snapshot> FileStore::range(std::string_view prefix, std::chrono::nanoseconds /*limit*/) {
  const auto contents = load();
  if (!contents) return contents.error();
  Snapshot snapshot{contents->revision, {}};
  for (auto at = contents->entries.lower_bound(prefix);
       at != contents->entries.end() && at->first.starts_with(prefix); ++at)
    snapshot.entries.push_back(entry_of(at->first, at->second));
  return snapshot;
}

Result<Committed> FileStore::commit(const Transaction& transaction,
                                    std::chrono::nanoseconds limit) {
  Committed committed{Outcome::kRefused, 0, {}};
  bool replaced = false;
  const Status done = locked(limit, replaced, [&](FileContents& contents) -> Result<bool> {
    committed.revision = contents.revision;
    for (const Compare& compare : transaction.compares)
      if (!contents.holds(compare)) return false;
    for (const Change& change : transaction.changes)
      if (change.lease != kNoLease && !contents.leases.contains(change.lease))
        return Error{Code::kNotFound, "lease of a cluster"}.with_subject(change.key);
    committed.revision = ++contents.revision;
    for (const Change& change : transaction.changes)
      if (change.value)
        contents.entries[change.key] = {*change.value, contents.revision, change.lease};
      else
        contents.entries.erase(change.key);
    committed.outcome = Outcome::kApplied;
    return true;
  });
  // The new file is in its place, but may be gone after a crash of the host.
  if (!done && replaced) return Committed{Outcome::kUnknown, committed.revision, done.error()};
  if (!done) return done.error();
  return committed;
}

Result<LeaseId> FileStore::grant_lease(std::chrono::seconds lifetime,
                                       std::chrono::nanoseconds limit) {
  const LeaseId id = random_number();
  bool replaced = false;
  const Status done = locked(limit, replaced, [&](FileContents& contents) -> Result<bool> {
    const auto lifetime_s = std::uint64_t(lifetime.count());
    contents.leases[id] = {lifetime_s, boot_time_ms() + lifetime_s * 1000, host_boot_id()};
    return true;
  });
  if (!done) return done.error();
  return id;
}

Status FileStore::keep_alive(LeaseId lease, std::chrono::nanoseconds limit) {
  bool replaced = false;
  return locked(limit, replaced, [&](FileContents& contents) -> Result<bool> {
    const auto found = contents.leases.find(lease);
    if (found == contents.leases.end()) return Error{Code::kNotFound, "lease of a cluster"};
    found->second.ends_ms = boot_time_ms() + found->second.lifetime_s * 1000;
    return true;
  });
}

Status FileStore::revoke(LeaseId lease, std::chrono::nanoseconds limit) {
  bool replaced = false;
  return locked(limit, replaced, [&](FileContents& contents) -> Result<bool> {
    contents.end_lease(lease);
    return true;
  });
}

}  // namespace remora::volume
