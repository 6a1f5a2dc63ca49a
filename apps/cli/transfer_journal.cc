#include "cli/transfer_journal.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace remora::apps {
namespace {

namespace fs = std::filesystem;

/// Empty: the environment names none.
fs::path state_folder() {
  const auto variable = [](const char* name) -> std::string_view {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string_view{} : value;
  };
  if (const auto own = variable("REMORA_STATE_DIR"); !own.empty()) return fs::path{own};
  if (const auto state = variable("XDG_STATE_HOME"); !state.empty())
    return fs::path{state} / "remora";
  if (const auto home = variable("HOME"); !home.empty())
    return fs::path{home} / ".local" / "state" / "remora";
  return {};
}

Failure journal_failure(const std::string& path, int number) {
  return Failure{ExitCode::kLocal, "--resume: " + path + ": " + std::strerror(number) +
                                       "; REMORA_STATE_DIR names the folder for the state"};
}

std::string short_name(const Json& names) {
  auto sum = Checksum::make(ChecksumKind::kSha256);
  const std::string text = names.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!sum) return std::to_string(std::hash<std::string>{}(text));
  sum->update(std::as_bytes(std::span{text}));
  return sum->digest().substr(0, 32);
}

/// Opens and locks the file. The process that had it locked may remove it in between.
Descriptor open_locked(const std::string& path) {
  constexpr int kTriesMax = 100;
  for (int i = 0; i < kTriesMax; ++i) {
    Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR)};
    if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return Descriptor{};
    struct stat status {};
    if (::fstat(file.get(), &status) == 0 && status.st_nlink > 0) return file;
  }
  errno = EAGAIN;
  return Descriptor{};
}

std::string text_of_file(int fd) {
  std::string text;
  std::array<char, 65536> part{};
  while (true) {
    const ssize_t got = ::pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

/// The reason why two identities differ, by the first key that differs.
struct Difference {
  std::string_view key;
  std::string_view clause;
};
constexpr std::array kDifferences{
    Difference{"checksum", "--checksum is another one"},
    Difference{"length", "the length is another one"},
    Difference{"file", "the file has changed since"},
    Difference{"volume_id", "the volume was removed and created again since"},
    Difference{"regions", "other regions hold the bytes of the volume since"},
    Difference{"memory_id", "the server has new memory since"},
    Difference{"incarnation", "the region was removed and created again since"},
    Difference{"epoch", "the region was fenced or made smaller since"}};

}  // namespace

tl::expected<std::unique_ptr<TransferJournal>, Failure> TransferJournal::open(const Json& names) {
  const fs::path folder = state_folder();
  if (folder.empty())
    return fail(ExitCode::kLocal,
                "--resume: there is no folder for the state of the transfer: neither "
                "REMORA_STATE_DIR nor XDG_STATE_HOME nor HOME is set");
  std::error_code failed;
  if (fs::create_directories(folder, failed)) fs::permissions(folder, fs::perms::owner_all, failed);
  if (failed) return tl::make_unexpected(journal_failure(folder.string(), failed.value()));
  const std::string path = (folder / (short_name(names) + ".journal")).string();
  Descriptor file = open_locked(path);
  if (file.get() < 0 && errno == EWOULDBLOCK)
    return fail(ExitCode::kRefused, "--resume: another process has the same transfer under way (" +
                                        path + " is locked)");
  if (file.get() < 0) return tl::make_unexpected(journal_failure(path, errno));
  std::unique_ptr<TransferJournal> made{new TransferJournal{std::move(file), path, names}};
  made->load();
  return made;
}

void TransferJournal::load() {
  const std::string text = text_of_file(file_.get());
  Left found;
  bool first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn by the end of the process
    const Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (first) {
      if (!line.is_object() || !line.contains("names") || line["names"] != names_ ||
          !line.contains("identity"))
        return;
      found.identity = line["identity"];
      first = false;
      continue;
    }
    if (!line.is_object() || !line.contains("done") || !line["done"].is_number_unsigned() ||
        !line.contains("digest") || !line["digest"].is_string())
      continue;  // torn by a full disk, or of another version
    found.done = line["done"].get<std::uint64_t>();
    found.digest = line["digest"].get<std::string>();
  }
  if (found.done > 0 && found.done % kCheckpointBytes == 0) left_ = std::move(found);
}

std::string TransferJournal::mismatch(const Json& identity) const {
  if (!left_) return {};
  for (const Difference& each : kDifferences) {
    const std::string key{each.key};
    const bool had = left_->identity.contains(key);
    if (had != identity.contains(key) || (had && left_->identity[key] != identity[key]))
      return std::string{each.clause};
  }
  return left_->identity == identity ? std::string{} : "the state is of another version of remora";
}

void TransferJournal::go_on() {
  const detail::MutexLock lock{mutex_};
  whole_ = written_ = left_ ? left_->done : 0;
}

tl::expected<void, Failure> TransferJournal::begin(const Json& identity) {
  left_.reset();
  int number = ::ftruncate(file_.get(), 0) == 0 ? 0 : errno;
  if (number == 0) number = append(Json{{"names", names_}, {"identity", identity}});
  if (number != 0) return tl::make_unexpected(journal_failure(path_, number));
  return {};
}

int TransferJournal::append(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  const ssize_t put = ::write(file_.get(), text.data(), text.size());
  if (put == static_cast<ssize_t>(text.size())) return 0;
  return put < 0 ? errno : ENOSPC;
}

void TransferJournal::moved(const Piece& piece) {
  const detail::MutexLock lock{mutex_};
  apart_.emplace(piece.at, piece.at + piece.length);
  while (!apart_.empty() && apart_.begin()->first <= whole_) {
    whole_ = std::max(whole_, apart_.begin()->second);
    apart_.erase(apart_.begin());
  }
  write_reached();
}

void TransferJournal::summed(std::uint64_t end, const std::string& digest) {
  const detail::MutexLock lock{mutex_};
  digests_.push_back({end, digest});
  write_reached();
}

void TransferJournal::write_reached() {
  while (!digests_.empty() && digests_.front().end <= whole_) {
    const Digest& next = digests_.front();
    // If the line cannot be written, the next run begins at an earlier one.
    if (append(Json{{"done", next.end}, {"digest", next.text}}) == 0) written_ = next.end;
    digests_.pop_front();
  }
}

std::uint64_t TransferJournal::done() {
  const detail::MutexLock lock{mutex_};
  return written_;
}

void TransferJournal::remove() noexcept { ::unlink(path_.c_str()); }

}  // namespace remora::apps
