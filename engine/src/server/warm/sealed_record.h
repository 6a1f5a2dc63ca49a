#pragma once

/// Bytes that outlive this process: a memfd with two slots and a commit word. A process that dies
/// at any instruction of write() leaves either the former record or the new one.
///
/// | bytes | content |
/// |---|---|
/// | 0 … 7 | "RMRAWARM" |
/// | 8 … 15 | commit word; 0: nothing is committed |
/// | 4096 + n × kSlotBytes | slot n: header of 32 bytes, payload |
///
/// Commit word: its low half is the low half of the committed sequence, its high half the CRC32C of
/// the header of that slot.
///
/// Header of a slot: sequence (8 bytes), length of the payload (8), CRC32C of the payload (4),
/// version of this table (4), zero (8). All numbers are little-endian. The record of sequence s is
/// in slot s % 2. The commit word names one header by its CRC, so damage is noticed and not taken
/// for an unfinished write: the former record is not read in its place.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Owns the memfd. One process at a time writes it. Not thread-safe.
class SealedRecord {
 public:
  /// The longest payload, with its header. The memfd uses memory only for written bytes.
  static constexpr std::uint64_t kSlotBytes = 64ULL << 20U;
  static constexpr std::uint64_t kFirstSlot = 4096;
  static constexpr std::uint64_t kHeaderBytes = 32;
  static constexpr std::uint64_t kFileBytes = kFirstSlot + 2 * kSlotBytes;
  static constexpr std::uint32_t kVersion = 1;

  /// An empty record. Errors: kSystem, kOutOfMemory.
  static Result<SealedRecord> create(const char* name);
  /// Opens a record that another process has made. Errors: kProtocol (the subject says what is
  /// wrong), kSystem.
  static Result<SealedRecord> adopt(UniqueFd fd);

  /// The committed bytes. Errors: kNotFound: nothing is committed; kProtocol: they are damaged, or
  /// of another version (the subject says which); kSystem.
  Result<std::vector<std::byte>> read();
  /// Commits `payload` in place of the former record. Errors: kLimitExceeded, kOutOfMemory,
  /// kSystem; then the former record stays.
  Status write(std::span<const std::byte> payload);
  /// Removes the commitment: a later process reads kNotFound.
  void spoil() noexcept;
  /// Locks the record for one process (F_SETLK); the lock ends with the process. False, which is no
  /// error: another process, `holder`, has the lock.
  [[nodiscard]] bool try_lock(std::int64_t& holder) const noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// The steps of write(), in order: the bytes of the slot, then the commit word by one store.
  struct Staged {
    std::uint64_t offset_bytes = 0;
    std::array<std::byte, kHeaderBytes> header{};
    std::uint64_t commit_word = 0;
  };
  [[nodiscard]] static Staged stage(std::span<const std::byte> payload,
                                    std::uint64_t sequence) noexcept;
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

 private:
  struct Unmap {
    void operator()(std::byte* page) const noexcept;
  };
  using Page = std::unique_ptr<std::byte, Unmap>;
  static Result<SealedRecord> map(UniqueFd fd);
  SealedRecord(UniqueFd fd, Page page) noexcept : fd_{std::move(fd)}, page_{std::move(page)} {}
  [[nodiscard]] std::uint64_t commit_word() const noexcept;
  void set_commit_word(std::uint64_t word) noexcept;

  UniqueFd fd_;
  Page page_;                   ///< the first page of the memfd
  std::uint64_t sequence_ = 0;  ///< of the committed record
};

}  // namespace remora::detail
