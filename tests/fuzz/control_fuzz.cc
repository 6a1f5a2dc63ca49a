// Control messages, both ways: what clients may say to a server, and servers to a client. Also any
// bytes at all to what reads messages.

#include "control_fuzz.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fake_net.h"
#include "protocol/messages.h"

namespace remora::fuzz {
namespace {

/// What is taken for a message of ours can be sent on, and errors and regions of it be read.
void read_alone(const Script& script) {
  for (const Step& step : script.steps) {
    const auto envelope = control::decode(std::as_bytes(std::span{step.bytes}));
    if (!envelope) {
      require(envelope.error().code() == Code::kProtocol, "what is no message breaks the protocol");
      continue;
    }
    require(envelope->magic() == control::kMagic && envelope->id() != 0, "messages are marked");
    const auto again = control::encode(*envelope);
    require(!again || control::decode(*again).ok(), "a message can be sent on");
    const control::Reply& reply = envelope->reply();
    const Error error = control::to_error(reply.failure(), "fuzz");
    require(!error.message().empty(), "an error can be printed");
    control::Envelope told;
    told.set_magic(control::kMagic);
    told.set_id(1);
    *told.mutable_reply()->mutable_failure() = control::to_failure(error);
    require(control::decode(control::encode(told).value()).ok(), "an error can be sent on");
    for (const control::Region& region : reply.list().regions()) (void)control::to_info(region);
    const auto info = control::to_info(reply.stat().region());
    if (!info) continue;
    const auto same = control::to_info(control::to_message(*info));
    require(same && same->name == info->name && same->size_bytes == info->size_bytes,
            "a region survives the wire");
  }
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return remora::fuzz::run_script(data, size, &remora::fuzz::fuzz_server,
                                  &remora::fuzz::fuzz_client, &remora::fuzz::read_alone);
}
