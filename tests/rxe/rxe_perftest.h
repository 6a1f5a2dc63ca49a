#pragma once

/// perftest's control connection in its rdma_cm mode (-R), spoken from our side.
///
/// The first connection to the port carries control messages as sends, the second one, to the same
/// port, the test. A message is the client's, then the server's of the same kind and length:
///
/// | when | messages |
/// |---|---|
/// | first | version of the protocol (16 bytes of text) |
/// | | step between buffers and cache line (4 bytes each, big-endian); MTU (2 bytes of text) |
/// | | an offer of zeros |
/// | connected twice | an offer of zeros; the offer, 4 times |
/// | tested | of reads, the client's report: bytes, iterations (8 each, big-endian) |
/// | | peak, average, messages (doubles, big-endian); then the offer once more |
///
/// An offer is 56 bytes, big-endian: LID (4), reads at a time (4), queue pair number (4), PSN (4),
/// rkey (4), padding (4), address (8), GID (16), SRQ number (4), GID index (4). The server
/// disconnects.
/// Source: what `ib_send_bw` and `ib_read_bw` of perftest 4.5 (protocol 6.06) send; the names of
/// the fields are from linux-rdma/perftest, src/perftest_communication.c.

#include "rxe_fixture.h"

namespace remora::test {

/// One side's memory, as an offer tells it.
struct PerftestOffer {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

class PerftestControl {
 public:
  /// Posts the receives of a control connection that is about to be made. `rig` is its own.
  static Status prepare(verbs::QueuePair<verbs::Rc>& queue_pair, Rig& rig);
  PerftestControl(verbs::Connection connection, Rig rig, PerftestOffer mine)
      : connection_{std::move(connection)}, rig_{std::move(rig)}, mine_{mine} {}

  /// The server's half of `count` exchanges: the peer's own words, and our memory in its offers.
  testing::AssertionResult answer(int count);

  /// The client's messages before the second connection, between it and the test, and after it.
  testing::AssertionResult open();
  testing::AssertionResult exchange_offers();
  testing::AssertionResult report(std::uint64_t length_bytes, std::uint64_t iterations);
  testing::AssertionResult close();

  /// What the peer offered last.
  [[nodiscard]] const PerftestOffer& peer() const noexcept { return peer_; }

 private:
  testing::AssertionResult tell(std::span<const std::byte> message);
  testing::AssertionResult hear(std::vector<std::byte>& message);
  testing::AssertionResult exchange(std::span<const std::byte> message);
  testing::AssertionResult exchange_integer(std::uint64_t value, std::size_t length_bytes);
  testing::AssertionResult exchange_offer(const PerftestOffer& offer);

  verbs::Connection connection_;
  Rig rig_;
  PerftestOffer mine_;
  PerftestOffer peer_;
};

}  // namespace remora::test
