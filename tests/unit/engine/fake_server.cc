#include "fake_server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "client/region/region_grant.h"

namespace remora::transport {

FakeServerEndpoint::FakeServerEndpoint(Offer offer)
    : offer_{std::move(offer)}, event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}

Status FakeServerEndpoint::send(ControlMessage message, Deadline /*deadline*/) noexcept {
  const auto asked = control::decode(message.bytes);
  if (!asked) return asked.error();
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(asked->id());
  *envelope.mutable_reply() = answer(asked->request());
  auto bytes = control::encode(envelope);
  if (!bytes) return bytes.error();
  const std::lock_guard lock{mutex_};
  answers_.push_back({.bytes = std::move(*bytes), .descriptors = {}});
  const std::uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
  return {};
}

Result<std::optional<ControlMessage>> FakeServerEndpoint::receive() noexcept {
  const std::lock_guard lock{mutex_};
  std::uint64_t count = 0;
  if (answers_.empty()) {
    (void)!::read(event_.get(), &count, sizeof count);
    return std::optional<ControlMessage>{};
  }
  std::optional<ControlMessage> first{std::move(answers_.front())};
  answers_.erase(answers_.begin());
  return first;
}

control::Reply FakeServerEndpoint::answer(const control::Request& request) const {
  control::Reply reply;
  if (request.has_hello()) {
    control::Welcome& welcome = *reply.mutable_hello();
    welcome.set_version(control::kVersionNewest);
    welcome.set_device(offer_.direct ? "" : device_);
    welcome.set_lane_keys(offer_.lane_of_keys != nullptr);
  } else if (request.has_open()) {
    control::OpenReply& opened = *reply.mutable_open();
    *opened.mutable_region() =
        control::to_message({.name = "r",
                             .size_bytes = offer_.memory.size(),
                             .block_bytes = 64,
                             .rights = Rights::kAll,
                             .atomic_domain = offer_.direct ? "cpu" : device_,
                             .shm = offer_.direct.has_value(),
                             .epoch = 1,
                             .extent_count = 1});
    opened.set_grant_id(1);
    control::Extent& extent = *opened.add_extents();
    extent.set_length_bytes(offer_.memory.size());
    extent.set_address(reinterpret_cast<std::uintptr_t>(offer_.memory.data()));
    extent.set_key(1);
    if (offer_.lane_of_keys != nullptr) extent.add_lane_keys(1);
  } else {
    reply.mutable_close();
  }
  return reply;
}

std::shared_ptr<detail::SessionCore> start_fake_session(
    const std::shared_ptr<detail::EngineCore>& engine, FakeServerEndpoint::Offer offer) {
  using Connected = Result<std::unique_ptr<ClientEndpoint>>;
  // It answers one client, once.
  const auto only = std::make_shared<FakeServerEndpoint::Offer>(std::move(offer));
  detail::ServerConnector connector{
      .server = "fake:1", .connect = [only](Deadline /*deadline*/) {
        return Connected{std::make_unique<FakeServerEndpoint>(std::move(*only))};
      }};
  return detail::SessionCore::start(engine, std::move(connector),
                                    deadline_after(std::chrono::seconds{10}))
      .value();
}

Region open_fake_region(const std::shared_ptr<detail::EngineCore>& engine,
                        FakeServerEndpoint::Offer offer) {
  return Region{detail::RegionGrant::open(start_fake_session(engine, std::move(offer)), "r",
                                          Rights::kAll, "fake",
                                          deadline_after(std::chrono::seconds{10}))
                    .value()};
}

}  // namespace remora::transport
