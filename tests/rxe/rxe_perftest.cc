#include "rxe_perftest.h"

#include <algorithm>
#include <bit>

namespace remora::test {
namespace {

constexpr std::size_t kPerftestSlotBytes = 128;  // of a receive
constexpr std::uint64_t kPerftestReceives = 4;
constexpr std::uint64_t kPerftestSend = 99;
constexpr std::size_t kPerftestOfferBytes = 56;
constexpr std::size_t kPerftestRkeyAt = 16;
constexpr std::size_t kPerftestAddressAt = 24;

void put_big_endian(std::span<std::byte> to, std::uint64_t value) {
  for (std::size_t i = to.size(); i-- > 0; value >>= 8) to[i] = static_cast<std::byte>(value);
}
std::uint64_t get_big_endian(std::span<const std::byte> from) {
  std::uint64_t value = 0;
  for (const std::byte byte : from) value = value << 8 | std::to_integer<std::uint64_t>(byte);
  return value;
}

verbs::LocalSlice perftest_slot(Rig& rig, std::uint64_t id) {
  return rig.memory->slice(id * kPerftestSlotBytes, kPerftestSlotBytes);
}

void put_perftest_offer(std::span<std::byte> message, const PerftestOffer& offer) {
  put_big_endian(message.subspan(kPerftestRkeyAt, 4), offer.rkey);
  put_big_endian(message.subspan(kPerftestAddressAt, 8), offer.address);
}

}  // namespace

Status PerftestControl::prepare(verbs::QueuePair<verbs::Rc>& queue_pair, Rig& rig) {
  for (std::uint64_t id = 0; id < kPerftestReceives; ++id)
    if (const Status posted = queue_pair.post_receive(id, perftest_slot(rig, id)); !posted)
      return posted;
  return {};
}

testing::AssertionResult PerftestControl::tell(std::span<const std::byte> message) {
  // Unsignaled: an answer says that it arrived, and a failure completes all the same.
  auto batch = connection_.queue_pair().start();
  batch.send_inline(kPerftestSend, message).unsignaled();
  if (const Status sent = batch.post(); !sent) return testing::AssertionFailure() << sent.error();
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::hear(std::vector<std::byte>& message) {
  const verbs::Completion done = rig_.complete(1)[0];
  if (!done.ok() || !done.is_receive()) return testing::AssertionFailure() << done;
  const std::byte* const from = rig_.at(done.id() * kPerftestSlotBytes);
  message.assign(from, from + done.length_bytes());
  if (message.size() == kPerftestOfferBytes) {
    const std::span<const std::byte> bytes{message};
    peer_ = {get_big_endian(bytes.subspan(kPerftestAddressAt, 8)),
             static_cast<std::uint32_t>(get_big_endian(bytes.subspan(kPerftestRkeyAt, 4)))};
  }
  const Status posted =
      connection_.queue_pair().post_receive(done.id(), perftest_slot(rig_, done.id()));
  if (!posted) return testing::AssertionFailure() << posted.error();
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::answer(int count) {
  std::vector<std::byte> message;
  for (int i = 0; i < count; ++i) {
    if (auto heard = hear(message); !heard) return heard << " at message " << i;
    if (message.size() == kPerftestOfferBytes) put_perftest_offer(message, mine_);
    if (auto told = tell(message); !told) return told;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::exchange(std::span<const std::byte> message) {
  if (auto told = tell(message); !told) return told;
  std::vector<std::byte> heard;
  if (auto went = hear(heard); !went) return went;
  if (heard.size() != message.size())
    return testing::AssertionFailure()
           << "an answer of " << heard.size() << " bytes to " << message.size();
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::exchange_integer(std::uint64_t value,
                                                           std::size_t length_bytes) {
  std::vector<std::byte> message(length_bytes);
  put_big_endian(message, value);
  return exchange(message);
}

testing::AssertionResult PerftestControl::exchange_offer(const PerftestOffer& offer) {
  std::vector<std::byte> message(kPerftestOfferBytes);
  put_perftest_offer(message, offer);
  return exchange(message);
}

testing::AssertionResult PerftestControl::open() {
  constexpr std::array<char, 16> kVersion{"6.06"};
  constexpr std::array<char, 2> kMtu4096{"5"};
  if (auto went = exchange(std::as_bytes(std::span{kVersion})); !went) return went;
  if (auto went = exchange_integer(4096, 4); !went) return went;
  if (auto went = exchange_integer(64, 4); !went) return went;
  if (auto went = exchange(std::as_bytes(std::span{kMtu4096})); !went) return went;
  return exchange_offer({});
}

testing::AssertionResult PerftestControl::exchange_offers() {
  if (auto went = exchange_offer({}); !went) return went;
  for (int i = 0; i < 4; ++i)
    if (auto went = exchange_offer(mine_); !went) return went;
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::report(std::uint64_t length_bytes,
                                                 std::uint64_t iterations) {
  // No rates: only the peer's own clock is of interest.
  for (const std::uint64_t word :
       {length_bytes, iterations, std::bit_cast<std::uint64_t>(1.0),
        std::bit_cast<std::uint64_t>(1.0), std::bit_cast<std::uint64_t>(1.0)})
    if (auto went = exchange_integer(word, 8); !went) return went;
  return testing::AssertionSuccess();
}

testing::AssertionResult PerftestControl::close() { return exchange_offer(mine_); }

}  // namespace remora::test
