// The bytes of the tcp transport, against either end of a lane, cut and delayed as the input says;
// and the pieces of a control channel: introductions, welcomes, framed messages.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/crc32c.h"
#include "tcp_lanes.h"
#include "transport/tcp/message_reader.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::fuzz {
namespace {

namespace tcp = transport::tcp;

/// What is taken for a T is a T: writing it again gives the same bytes.
template <typename T>
void preface(Input& input, bool sealed) {
  std::array<std::byte, T::kWireBytes> bytes{};
  const auto given = input.take_bytes(bytes.size());
  std::copy(given.begin(), given.end(), bytes.begin());
  if (sealed) tcp::wire::seal(std::span{bytes});
  const auto found = T::from_wire(bytes);
  if (found) require(found->to_wire() == bytes, "what is read of a preface is all of it");
}

/// Messages of a control channel, some of them spoilt, in pieces: those before the first that is
/// spoilt come whole and in order, and nothing comes after it.
void control_channel(Input& input) {
  SocketPair sockets{0};
  Peer peer{std::move(sockets.ours)};
  tcp::MessageReader reader;
  std::vector<Bytes> good;
  bool spoilt = false;
  std::size_t came = 0;
  bool ended = false;
  const auto receive = [&] {
    while (!ended) {
      const auto message = reader.receive(sockets.lane.get());
      if (!message) {
        ended = true;
        require(spoilt || message.error().code() == Code::kConnectionLost,
                "a good channel is not refused");
      } else if (message->has_value()) {
        const bool next = came < good.size() && (*message)->bytes == good[came];
        // Behind what is spoilt, bytes of the input's own may be a message too.
        require(next || (spoilt && came >= good.size()), "messages come whole and in order");
        ++came;
      } else {
        return;
      }
    }
  };
  while (!input.empty() && !peer.hung_up() && peer.said().size() < (std::size_t{1} << 18U)) {
    switch (input.below(4)) {
      case 0: {
        const std::size_t length = input.take<std::uint16_t>() % 20000;
        Bytes message(length, std::byte{input.byte()});
        const auto text = input.take_bytes(input.byte());
        std::copy_n(text.begin(), std::min(text.size(), length), message.begin());
        auto header = tcp::FrameHeader{.length_bytes = static_cast<std::uint32_t>(length),
                                       .message_crc = crc32c(message)}
                          .to_wire();
        const std::uint8_t at = input.byte();
        const std::byte change{input.byte()};
        if (at < header.size()) {
          header[at] ^= change;
          if (input.flag()) tcp::wire::seal(std::span{header});
        }
        const auto read = tcp::FrameHeader::from_wire(header);
        const bool whole =
            read && read->length_bytes == length && read->message_crc == crc32c(message);
        if (!whole) spoilt = true;
        if (!spoilt) good.push_back(message);
        peer.say(header);
        peer.say(message);
        break;
      }
      case 1:
        spoilt = true;
        peer.say(input.take_bytes(input.byte()));
        break;
      case 2: peer.deliver(1 + input.take<std::uint16_t>()); break;
      default: receive();
    }
  }
  while (peer.deliver(SIZE_MAX) > 0) receive();
  receive();
  if (!spoilt) require(came == good.size(), "all good messages have come");
  peer.hang_up();
  receive();
  require(ended, "the end is noticed");
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace remora::fuzz;
  Input input{data, size};
  switch (input.below(8)) {
    case 0: preface<remora::transport::tcp::Introduction>(input, true); break;
    case 1: preface<remora::transport::tcp::Welcome>(input, true); break;
    case 2: preface<remora::transport::tcp::Introduction>(input, false); break;
    case 3: control_channel(input); break;
    case 4:
    case 5: fuzz_client_lane(input); break;
    default: fuzz_server_lane(input);
  }
  return 0;
}
