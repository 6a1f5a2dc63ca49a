#pragma once

/// Operations that are provably in flight when the lane under them breaks: what is on the wire is
/// held back, 64 requests are posted, none of them can complete; then the lane's queue pair goes to
/// ERR, at the client's end or at the server's. For two hosts, over rdma.
///
/// What must hold: each of the 64 ends exactly once. A whole read is carried out again by the lane
/// that follows; a write and an atomic are indeterminate (I6). Once the session is settled each of
/// them has happened or has not, and what stands there does not change any more (I5). What was held
/// back on its way to the server has not happened. The engine has counted each end as what it was
/// (I9).

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include <remora/remora.h>

namespace remora::fault {

/// The side that breaks the lane, above or below the client library.
enum class LaneEnd : std::uint8_t {
  kClient,     ///< the engine, for an operation whose deadline has passed
  kServer,     ///< the server, for a client that is stopped for longer than its lease
  kRawClient,  ///< a client below the engine, by its own hand
  kRawServer,  ///< the server, for what a client below the engine says
};

struct FlightOptions {
  std::string uri{};  ///< of a region of 2 MiB in blocks of 4 KiB, which no other process uses
  LaneEnd end = LaneEnd::kClient;
  std::string hold{};     ///< a command; `in`, `out` or `both` is put behind it
  std::string release{};  ///< a command
  std::uint64_t rounds = 2;
  std::chrono::milliseconds stop{3500};  ///< kServer: for so long the client stands still
  std::uint64_t seed = 1;
  /// Seeded violations, to see that they are found.
  bool lets_pass = false;     ///< nothing is held back
  bool writes_late = false;   ///< something is written after everything has settled
  bool counts_wrong = false;  ///< one operation is told of twice, as ok
};

/// What is in the region, as far as it is known.
class FlightMemory {
 public:
  static constexpr std::uint64_t kBlockBytes = 4096;
  static constexpr std::size_t kReads = 24, kWrites = 24, kAdds = 16;
  static constexpr std::size_t kOperations = kReads + kWrites + kAdds;
  /// Where the operation is; no two are neighbours, so that none are joined to one request.
  [[nodiscard]] static constexpr std::uint64_t read_at(std::size_t i) {
    return (2 + 2 * i) * kBlockBytes;
  }
  [[nodiscard]] static constexpr std::uint64_t write_at(std::size_t i) {
    return (60 + 2 * i) * kBlockBytes;
  }
  [[nodiscard]] static constexpr std::uint64_t word_at(std::size_t i) { return 16 * i; }
  static constexpr std::uint64_t kBytes = (60 + 2 * kWrites) * kBlockBytes;

  /// Word `word` of block `block` as generation `generation` has it.
  [[nodiscard]] static constexpr std::uint64_t word_of(std::uint64_t generation, std::size_t block,
                                                       std::size_t word) {
    return generation << 32U | block << 16U | word;
  }
  static void fill(std::span<std::byte> bytes, std::uint64_t generation, std::size_t block);

  /// Writes everything, through `region`.
  void begin(const Region& region);
  /// Looks twice: each word is what it was or, of what was tried in this generation, what that
  /// makes of it, and the second look finds what the first one found. Returns what is wrong.
  std::vector<std::string> look(const Region& region, std::uint64_t tried, bool may_have_landed,
                                bool writes_late);
  /// Operations whose effect was seen.
  [[nodiscard]] std::uint64_t landed() const noexcept { return landed_; }

 private:
  struct Seen {
    std::vector<std::uint64_t> blocks;
    std::array<std::uint64_t, kAdds> words{};
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  static Seen read_all(const Region& region);

  Seen known_;
  std::uint64_t landed_ = 0;
};

struct FlightReport {
  std::uint64_t rounds = 0, operations = 0, ok = 0, in_flight = 0, landed = 0, resumed = 0;
  /// in which nothing was in flight when the lane broke, or none did
  std::uint64_t void_rounds = 0;
  std::uint64_t longest_verdict_ms =
      0;                               ///< from the break of the lane to the end of one that failed
  std::uint64_t longest_stall_ms = 0;  ///< that this process was not run, by accident
  std::map<std::string, std::uint64_t> failed{};
  std::vector<std::string> violations{};

  /// `fault: ...`
  [[nodiscard]] std::string line(LaneEnd end, std::uint64_t seed) const;
};
[[nodiscard]] std::string to_string(LaneEnd end);
/// What to_string() says; nothing for anything else.
[[nodiscard]] std::optional<LaneEnd> lane_end_of(const std::string& text);

/// Runs the rounds. Blocks. `stopper`: see start_stopper(). Throws Exception where it cannot even
/// begin.
FlightReport run_flights(const FlightOptions& options, int stopper);

/// A process that stops this one: a number of milliseconds written to what is returned makes it
/// stand still for so long. To be called before there are threads. -1: it could not be started.
int start_stopper();

}  // namespace remora::fault
