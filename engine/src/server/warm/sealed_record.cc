#include "server/warm/sealed_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace remora::detail {

namespace {

constexpr std::array<char, 8> kRecordMagic{'R', 'M', 'R', 'A', 'W', 'A', 'R', 'M'};
constexpr std::size_t kCommitWordAt = 8;
constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kPayloadCrcAt = 16;
constexpr std::size_t kVersionAt = 20;
constexpr unsigned kCrcShift = 32;

Error damaged(std::string_view what) {
  return Error{Code::kProtocol, "sealed record"}.with_subject(what);
}

Error record_failed(Operation operation) {
  const int system_errno = errno;
  const bool memory = system_errno == ENOMEM || system_errno == ENOSPC;
  return Error{memory ? Code::kOutOfMemory : Code::kSystem, operation}.with_errno(system_errno);
}

Status write_all(int fd, std::span<const std::byte> bytes, std::uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return record_failed("pwrite");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    at += static_cast<std::uint64_t>(done);
  }
  return {};
}

Status read_all(int fd, std::span<std::byte> bytes, std::uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return record_failed("pread");
    if (done == 0) return damaged("it is too short");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    at += static_cast<std::uint64_t>(done);
  }
  return {};
}

std::uint64_t slot_at(std::uint64_t sequence) noexcept {
  return SealedRecord::kFirstSlot + (sequence % 2) * SealedRecord::kSlotBytes;
}

std::uint64_t word_of(std::uint64_t sequence, std::span<const std::byte> header) noexcept {
  return (sequence & UINT32_MAX) | std::uint64_t{crc32c(header)} << kCrcShift;
}

}  // namespace

void SealedRecord::Unmap::operator()(std::byte* page) const noexcept { ::munmap(page, kFirstSlot); }

Result<SealedRecord> SealedRecord::map(UniqueFd fd) {
  void* const page = ::mmap(nullptr, kFirstSlot, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return record_failed("mmap");
  return SealedRecord{std::move(fd), Page{static_cast<std::byte*>(page)}};
}

Result<SealedRecord> SealedRecord::create(const char* name) {
  UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd) return record_failed("memfd_create");
  if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(kFileBytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return record_failed("sealed record");
  // The first page gets its memory here, so that a later store to the mapping cannot fail.
  if (auto written = write_all(fd.get(), std::as_bytes(std::span{kRecordMagic}), 0); !written)
    return written.error();
  return map(std::move(fd));
}

Result<SealedRecord> SealedRecord::adopt(UniqueFd fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return record_failed("fstat");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return damaged("it is no sealed memfd");
  if (static_cast<std::uint64_t>(status.st_size) != kFileBytes)
    return damaged("its length is that of another version");
  std::array<std::byte, kRecordMagic.size()> magic{};
  if (auto read = read_all(fd.get(), magic, 0); !read) return read.error();
  if (std::memcmp(magic.data(), kRecordMagic.data(), kRecordMagic.size()) != 0)
    return damaged("it does not begin as a record");
  return map(std::move(fd));
}

std::uint64_t SealedRecord::commit_word() const noexcept {
  std::uint64_t word = 0;
  __atomic_load(reinterpret_cast<std::uint64_t*>(page_.get() + kCommitWordAt), &word,
                __ATOMIC_ACQUIRE);
  return little_endian(word);
}

/// One aligned store: a process that dies leaves either the former word or this one.
void SealedRecord::set_commit_word(std::uint64_t word) noexcept {
  word = little_endian(word);
  __atomic_store(reinterpret_cast<std::uint64_t*>(page_.get() + kCommitWordAt), &word,
                 __ATOMIC_RELEASE);
}

SealedRecord::Staged SealedRecord::stage(std::span<const std::byte> payload,
                                         std::uint64_t sequence) noexcept {
  Staged staged{.offset_bytes = slot_at(sequence)};
  put_little_endian(staged.header.data(), sequence);
  put_little_endian(staged.header.data() + kLengthAt, std::uint64_t{payload.size()});
  put_little_endian(staged.header.data() + kPayloadCrcAt, crc32c(payload));
  put_little_endian(staged.header.data() + kVersionAt, kVersion);
  staged.commit_word = word_of(sequence, staged.header);
  return staged;
}

Result<std::vector<std::byte>> SealedRecord::read() {
  const std::uint64_t word = commit_word();
  if (word == 0) return Error{Code::kNotFound, "sealed record"};
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    std::array<std::byte, kHeaderBytes> header{};
    const std::uint64_t at = slot_at(slot);
    if (auto got = read_all(fd_.get(), header, at); !got) return got.error();
    const auto sequence = get_little_endian<std::uint64_t>(header.data());
    if (sequence % 2 != slot || word_of(sequence, header) != word) continue;
    // From here on the header is the committed one: its CRC is in the commit word.
    if (get_little_endian<std::uint32_t>(header.data() + kVersionAt) != kVersion)
      return damaged("it is of another version");
    const auto length = get_little_endian<std::uint64_t>(header.data() + kLengthAt);
    if (length > kSlotBytes - kHeaderBytes) return damaged("it is longer than its slot");
    std::vector<std::byte> payload(length);
    if (auto got = read_all(fd_.get(), payload, at + kHeaderBytes); !got) return got.error();
    if (crc32c(payload) != get_little_endian<std::uint32_t>(header.data() + kPayloadCrcAt))
      return damaged("the CRC of its content is wrong");
    sequence_ = sequence;
    return payload;
  }
  return damaged("no slot is the one that was committed");
}

Status SealedRecord::write(std::span<const std::byte> payload) {
  if (payload.size() > kSlotBytes - kHeaderBytes)
    return Error{Code::kLimitExceeded, "sealed record"}.with_limit(payload.size(),
                                                                   kSlotBytes - kHeaderBytes);
  // The sequence of a process that has spoiled its record is unknown; any sequence is correct then.
  const Staged staged = stage(payload, sequence_ + 1);
  if (auto written = write_all(fd_.get(), payload, staged.offset_bytes + kHeaderBytes); !written)
    return written;
  if (auto written = write_all(fd_.get(), staged.header, staged.offset_bytes); !written)
    return written;
  set_commit_word(staged.commit_word);
  ++sequence_;
  return {};
}

void SealedRecord::spoil() noexcept { set_commit_word(0); }

bool SealedRecord::try_lock(std::int64_t& holder) const noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd_.get(), F_SETLK, &lock) == 0) return true;
  lock.l_type = F_WRLCK;
  holder = ::fcntl(fd_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  return false;
}

}  // namespace remora::detail
