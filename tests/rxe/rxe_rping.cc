#include "rxe_rping.h"

#include <cstring>

namespace remora::test {
namespace {

constexpr std::size_t kSource = 0;       // what the client offers
constexpr std::size_t kSink = 1024;      // where it wants it back
constexpr std::size_t kIncoming = 4096;  // the peer's message
constexpr std::size_t kOutgoing = 4160;  // ours
constexpr std::size_t kMessageBytes = 16;

void store(std::byte* to, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i, value >>= 8) to[i] = static_cast<std::byte>(value & 0xff);
}
std::uint64_t load(const std::byte* from, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
  return value;
}

Status send_buffer(verbs::Connection& connection, Rig& rig, std::size_t offset,
                   std::uint32_t length, bool signaled) {
  store(rig.at(kOutgoing), rig.memory->address() + offset, 8);
  store(rig.at(kOutgoing + 8), rig.memory->rkey(), 4);
  store(rig.at(kOutgoing + 12), length, 4);
  auto batch = connection.queue_pair().start();
  batch.send(2, rig.memory->slice(kOutgoing, kMessageBytes)).signaled(signaled);
  return batch.post();
}

// Our send and the peer's message, in either order; the receive is posted again.
testing::AssertionResult exchange(verbs::Connection& connection, Rig& rig, std::size_t count) {
  for (const auto& done : rig.complete(count)) {
    if (!done.ok()) return testing::AssertionFailure() << done;
    if (!done.is_receive()) continue;
    if (done.length_bytes() != kMessageBytes)
      return testing::AssertionFailure() << "a message of " << done.length_bytes() << " bytes";
    const Status posted =
        connection.queue_pair().post_receive(1, rig.memory->slice(kIncoming, kMessageBytes));
    if (!posted) return testing::AssertionFailure() << posted.error();
  }
  return testing::AssertionSuccess();
}

verbs::RemoteSlice announced(Rig& rig) {
  return {load(rig.at(kIncoming), 8), load(rig.at(kIncoming + 12), 4),
          static_cast<std::uint32_t>(load(rig.at(kIncoming + 8), 4))};
}

}  // namespace

testing::AssertionResult rping_round(verbs::Connection& connection, Rig& rig,
                                     const std::string& text, std::uint32_t length) {
  std::memset(rig.at(kSource), 0, length);
  std::memset(rig.at(kSink), 0, length);
  std::memcpy(rig.at(kSource), text.data(), text.size());
  for (const std::size_t offset : {kSource, kSink}) {
    if (const Status sent = send_buffer(connection, rig, offset, length, true); !sent)
      return testing::AssertionFailure() << sent.error();
    if (auto went = exchange(connection, rig, 2); !went) return went;
  }
  if (std::memcmp(rig.at(kSink), text.c_str(), text.size() + 1) != 0)
    return testing::AssertionFailure() << "the echo differs";
  return testing::AssertionSuccess();
}

testing::AssertionResult rping_serve_round(verbs::Connection& connection, Rig& rig,
                                           std::uint32_t length) {
  for (const bool reading : {true, false}) {
    const auto arrived = rig.complete(1);
    if (!arrived[0].ok() || !arrived[0].is_receive())
      return testing::AssertionFailure() << "waiting for the client: " << arrived[0];
    const verbs::RemoteSlice buffer = announced(rig);
    if (const Status posted =
            connection.queue_pair().post_receive(1, rig.memory->slice(kIncoming, kMessageBytes));
        !posted)
      return testing::AssertionFailure() << posted.error();
    if (buffer.length_bytes() != length)
      return testing::AssertionFailure() << "a buffer of " << buffer.length_bytes() << " bytes";
    auto batch = connection.queue_pair().start();
    const auto mine = rig.memory->slice(kSink, length);
    if (reading)
      batch.read(3, mine, buffer);
    else
      batch.write(3, mine, buffer);
    if (const Status posted = batch.post(); !posted)
      return testing::AssertionFailure() << posted.error();
    if (const auto done = rig.complete(1); !done[0].ok())
      return testing::AssertionFailure() << done[0];
    // Unsignaled: its completion could come after the client's next message.
    if (const Status sent = send_buffer(connection, rig, kSink, length, false); !sent)
      return testing::AssertionFailure() << sent.error();
  }
  return testing::AssertionSuccess();
}

}  // namespace remora::test
