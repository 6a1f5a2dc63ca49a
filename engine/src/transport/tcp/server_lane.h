#pragma once

/// The server's end of a lane over tcp: requests in, memory touched, answers out.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/page_buffer.h"
#include "base/unique_fd.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A lane as the thread that serves it sees it. Work is done in steps of bounded length; between
/// them others are served. Memory is reached only within a step or through what a step has left
/// behind (a write half received, answers not sent), which abort() drops.
///
/// The bytes of a large read are sent from the region itself, those of a small one copied behind
/// their header. A write's bytes are received into the region itself, but
/// for what came together with its header: that was received into the buffer of headers and is
/// copied. With payload CRC everything goes through buffers: received, checked, copied; copied,
/// summed, sent.
///
/// All functions with the session's lock, by way of ServedSession.
class ServerLane {
 public:
  ServerLane(UniqueFd socket, std::shared_ptr<ServedSession> session, bool payload_crc);

  enum class Progress : std::uint8_t {
    kIdle,     ///< everything there has been served
    kMore,     ///< more can be done at once
    kBlocked,  ///< the peer has to read first
    kParked,   ///< the application has to handle notices first
    kDead,     ///< hung up, aborted, or not the protocol
  };
  /// Serves at most kMaxRequests requests and about kMaxBytes bytes.
  Progress step(const GrantTable& grants, ServedCounts& served) noexcept;

  /// Whether a transfer under way reaches memory by that key.
  [[nodiscard]] bool touches(std::uint32_t key) const noexcept;
  /// Drops what is under way and hangs up.
  void abort() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] ServedSession& session() const noexcept { return *session_; }
  /// Whether the last step moved any bytes.
  [[nodiscard]] bool moved() const noexcept { return moved_; }
  /// A request was refused: the lane only waits for its client to hear of it.
  [[nodiscard]] bool refused() const noexcept { return refused_; }

  /// The session has ended it. Any thread.
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }

  // The serving thread's own marks.
  bool active = false;
  bool hung_up = false;

  static constexpr std::size_t kMaxRequests = 64;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 10U;

 private:
  /// Why serving the buffered requests ended.
  enum class Stop : std::uint8_t { kNeedsBytes, kLimit, kNeedsRoom, kEnded };
  struct PendingRead {
    const std::byte* memory;
    std::uint32_t length_bytes;
    std::uint32_t key;
  };

  [[nodiscard]] bool output_pending() const noexcept { return output_first_ != output_count_; }
  Progress flush() noexcept;
  Progress drain() noexcept;
  /// False: the lane is dead.
  bool receive() noexcept;
  void fetch_ahead(const GrantTable& grants) noexcept;
  Stop serve(const GrantTable& grants, ServedCounts& served) noexcept;
  Stop serve_write(const RequestHeader& request, std::byte* memory, ServedCounts& served) noexcept;
  static void count(const RequestHeader& request, ServedCounts& served) noexcept;
  bool serve_read(const RequestHeader& request, const std::byte* memory) noexcept;
  void serve_atomic(const RequestHeader& request, std::byte* memory) noexcept;
  void refuse(const RequestHeader& request, CompletionStatus status) noexcept;
  [[nodiscard]] bool goes_straight(std::uint32_t payload_bytes) const noexcept {
    return payload_bytes >= straight_from_;
  }
  [[nodiscard]] std::byte* next_payload() noexcept {
    return outgoing_.data() + outgoing_end_ + AnswerHeader::kWireBytes;
  }
  void answer(const RequestHeader& request,
              CompletionStatus status = CompletionStatus::kSuccess) noexcept;
  void add_output(const std::byte* bytes, std::size_t length) noexcept;
  [[nodiscard]] bool overlaps_pending(const std::byte* memory, std::uint32_t length) const noexcept;

  UniqueFd socket_;
  std::shared_ptr<ServedSession> session_;
  bool payload_crc_;
  std::uint32_t straight_from_;  ///< reads of so many bytes are sent from the region itself
  bool dead_ = false;
  bool moved_ = false;
  bool refused_ = false;
  std::atomic<bool> aborted_{false};
  bool said_all_ = false;  ///< the refusal has left, and the end of the stream behind it
  std::optional<std::uint32_t> next_sequence_;

  std::size_t input_size_;
  remora::detail::PageBuffer input_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t half_ = 0;       ///< of what the last receive left there
  std::size_t fetched_ = 0;    ///< memory of the requests before this has been asked for
  bool starved_ = true;        ///< the buffered bytes are no whole request
  bool filled_ = false;        ///< the last receive took all it had room for
  bool large_writes_ = false;  ///< the last request was one: receive headers alone

  std::byte* target_ = nullptr;  ///< of a write half received
  std::uint32_t target_left_ = 0;
  RequestHeader write_;

  // Answers on their way: of one step, all gone before the next one serves.
  std::size_t outgoing_size_;
  remora::detail::PageBuffer outgoing_;  // headers, and behind each what does not go straight
  std::size_t outgoing_end_ = 0;
  std::array<PendingRead, kMaxRequests> reads_;  // that go straight
  std::size_t read_count_ = 0;
  std::array<iovec, 2 * kMaxRequests> output_;
  std::size_t output_first_ = 0;
  std::size_t output_count_ = 0;
};

}  // namespace remora::transport::tcp
