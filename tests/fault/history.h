#pragma once

/// What threads and processes did to words of a region, and when: the input of the linearizability
/// checker, and what is left of a client that was killed.
///
/// A LoadPage is memory that its users share, a file or anonymous: a cell for each block (which
/// writes were tried and acknowledged) and a record for each atomic operation. A record is there
/// before its operation is handed over, so a process that dies leaves none out. Times are of one
/// steady clock: processes of one host.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linearizability.h"

namespace remora::fault {

/// What became of an operation.
enum class Effect : std::uint32_t {
  kPending,  ///< its client has not said: it may take effect, once or never
  kDone,     ///< it did, and returned `result`
  kUnknown,  ///< as kPending: the client was told that it is not known
  kNone,     ///< provably none
};

/// One block, from its writer's point of view.
struct BlockCell {
  std::atomic<std::uint64_t> session{0};  ///< its writer; 0: not written in this life
  std::atomic<std::uint64_t> issued{0};
  std::atomic<std::uint64_t> acknowledged{0};
};

/// Operations of one kind: those begun that have not ended are in flight, or about to be.
struct KindCell {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> ended{0};
};

/// One atomic operation.
struct AtomicRecord {
  std::uint64_t memory = 0;  ///< one life of the region's contents
  std::uint64_t word = 0;    ///< offset in the region
  std::int64_t invoked_ns = 0;
  std::atomic<std::int64_t> responded_ns{0};
  std::uint64_t expected = 0;  ///< compare_swap; else the number that is added
  std::uint64_t desired = 0;
  std::uint64_t result = 0;
  std::uint32_t kind = 0;  ///< WordOperation::Kind
  std::uint32_t thread = 0;
  std::atomic<Effect> effect{Effect::kPending};
  std::atomic<bool> there{false};  ///< complete up to its invocation
};

/// See the top of this file. Move-only owner of the mapping. Records and cells may be used from any
/// thread and process that has it mapped; each belongs to the thread it was handed to.
class LoadPage {
 public:
  /// `path`: a file that is made anew; empty: anonymous memory. `record_count`: without those of
  /// the last look. Throws std::runtime_error.
  static LoadPage create(const std::string& path, std::size_t block_count,
                         std::size_t record_count);
  /// What another process has made. Throws std::runtime_error.
  static LoadPage open(const std::string& path);

  [[nodiscard]] std::span<BlockCell> blocks() const noexcept;
  /// Which writes of a block are zeroes: see BlockModel. 0: none.
  [[nodiscard]] std::atomic<std::uint64_t>& zeroes_each() noexcept { return header_->zeroes_each; }
  /// The caller numbers its kinds of operations.
  static constexpr std::size_t kKinds = 8;
  [[nodiscard]] KindCell& kind(std::size_t number) const noexcept;
  /// Records that only a last look may take, so that there is always room for it.
  static constexpr std::size_t kLastRecords = 256;
  enum class Room : std::uint8_t { kUsual, kLast };
  /// A record of its own for an operation; null: all are taken, make no more atomic operations.
  AtomicRecord* begin(std::uint64_t memory, std::uint64_t word, const WordOperation& operation,
                      std::uint32_t thread, Room room = Room::kUsual) noexcept;
  static void end(AtomicRecord& record, Effect effect, std::uint64_t result = 0) noexcept;

  /// Records so far.
  [[nodiscard]] std::size_t size() const noexcept;
  /// All of one word, in no order. Provably void ones are among them, as such.
  [[nodiscard]] std::vector<WordOperation> of(std::uint64_t memory, std::uint64_t word) const;
  /// (memory, word) pairs that there are records of.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> words() const;

 private:
  struct Header {
    std::uint64_t block_count;
    std::uint64_t record_count;
    std::atomic<std::uint64_t> next;
    std::atomic<std::uint64_t> zeroes_each;
    std::array<KindCell, kKinds> kinds;
  };
  struct Unmap {
    std::size_t length;
    void operator()(Header* header) const noexcept;
  };
  explicit LoadPage(std::unique_ptr<Header, Unmap> header) noexcept : header_{std::move(header)} {}
  [[nodiscard]] std::span<AtomicRecord> records() const noexcept;
  static std::size_t bytes_of(std::size_t block_count, std::size_t record_count) noexcept;
  static LoadPage map(int descriptor, std::size_t length);

  std::unique_ptr<Header, Unmap> header_;
};

/// The steady clock, in nanoseconds: the same in all processes of a host.
[[nodiscard]] std::int64_t now_ns() noexcept;

/// Checks each word of the page. The first that is not linearizable, or not decided, with its text;
/// else kLinearizable. `initial`: what every word held at first.
Linearizability check_words(const LoadPage& page, std::uint64_t initial = 0);

}  // namespace remora::fault
