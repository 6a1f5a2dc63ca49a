#include "raw_session.h"

#include <array>
#include <chrono>
#include <poll.h>
#include <utility>

#include <remora/engine/uri.h>

#include "support/eventually.h"
#include "transport/connect.h"

namespace remora::test {

using namespace std::chrono_literals;
using transport::WorkRequest;

namespace {
constexpr std::size_t kLocalBytes = 4096;
constexpr std::uint32_t kLaneDepth = 64;
}  // namespace

RawSession::RawSession(const ServerAddress& server, TransportKind transport,
                       const transport::LaneTicket* before, LaneKeys lane_keys)
    : local_(kLocalBytes) {
  Uri uri;
  uri.host = server.host;
  uri.port = server.port;
  uri.transport = transport;
  const Deadline deadline = Clock::now() + 10s;
  endpoint_ = transport == TransportKind::kTcp ? transport::connect_tcp(uri, {}, deadline).value()
                                               : transport::connect_rdma(uri, {}, deadline).value();
  control::Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(control::kVersionOldest);
  hello.set_version_newest(control::kVersionNewest);
  hello.set_auth(control::AUTH_NONE);
  hello.set_client_name("raw");
  hello.set_comes_back(before != nullptr);
  const bool checked = rdma_protection() != config::RdmaProtection::kWindowsUnchecked;
  hello.set_lane_keys(lane_keys == LaneKeys::kAlways ||
                      (lane_keys == LaneKeys::kWhereChecked && checked));
  if (before != nullptr && before->session_id != 0) {
    hello.mutable_resume()->set_session_id(before->session_id);
    hello.mutable_resume()->set_lane_secret(before->secret);
  }
  const control::Welcome welcome = call(std::move(request)).hello();
  ticket_ = {.session_id = welcome.session_id(), .secret = welcome.lane_secret()};
  has_lane_keys_ = welcome.lane_keys();
  if (const auto domain = endpoint_->memory_domain())
    registration_ = domain->register_bytes(local_).value();
  // It does not tell the server which lane is which, so that they are counted as they come; and
  // posts keys, no tokens.
  lane_ = open_lane();
}

std::unique_ptr<transport::Lane> RawSession::open_lane() {
  return endpoint_->open_lane(ticket_, kLaneDepth, Clock::now() + 10s).value();
}

RawSession::~RawSession() {
  if (lane_ != nullptr) lane_->close();
  lane_.reset();
  registration_.reset();
  endpoint_->shutdown();
}

control::Reply RawSession::call(control::Request request) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(next_id_++);
  *envelope.mutable_request() = std::move(request);
  send_control(control::encode(envelope).value());
  for (Patience patience{10s}; !patience.over();) {
    auto message = endpoint_->receive().value();
    if (!message) {
      pollfd event{.fd = endpoint_->event_fd(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, 100);
      continue;
    }
    const control::Envelope answer = control::decode(message->bytes).value();
    if (answer.reply().has_failure())
      throw Exception{control::to_error(answer.reply().failure(), "raw call")};
    return answer.reply();
  }
  throw Exception{Error{Code::kTimedOut, "raw call"}};
}

RawSession::Grant RawSession::open(const std::string& region, Rights rights) {
  control::Request request;
  request.mutable_open()->set_name(region);
  request.mutable_open()->set_rights(static_cast<std::uint32_t>(rights));
  const control::OpenReply opened = call(std::move(request)).open();
  Grant grant{.id = opened.grant_id(), .extents = {}};
  read(opened.extents(), grant);
  return grant;
}

RawSession::Grant RawSession::fence(const std::string& region, Rights rights) {
  control::Request request;
  request.mutable_fence()->set_name(region);
  request.mutable_fence()->set_rights(static_cast<std::uint32_t>(rights));
  const control::OpenReply opened = call(std::move(request)).fence().opened();
  Grant grant{.id = opened.grant_id(), .extents = {}};
  read(opened.extents(), grant);
  return grant;
}

RawSession::Grant RawSession::ask_again(const Grant& grant) {
  control::Request request;
  request.mutable_extents()->set_grant_id(grant.id);
  const control::Reply reply = call(std::move(request));
  Grant again{.id = grant.id, .extents = {}};
  read(reply.extents().extents(), again);
  return again;
}

void RawSession::read(const google::protobuf::RepeatedPtrField<control::Extent>& page,
                      Grant& grant) {
  for (const control::Extent& extent : page) {
    grant.extents.push_back({.start_bytes = 0,
                             .length_bytes = extent.length_bytes(),
                             .remote_address = extent.address(),
                             .remote_key = extent.key()});
    grant.lane_keys.lanes = static_cast<std::size_t>(extent.lane_keys_size());
    grant.lane_keys.keys.insert(grant.lane_keys.keys.end(), extent.lane_keys().begin(),
                                extent.lane_keys().end());
  }
}

void RawSession::close(const Grant& grant) {
  control::Request request;
  request.mutable_close()->set_grant_id(grant.id);
  call(std::move(request));
}

CompletionStatus RawSession::run_on(transport::Lane& lane, transport::Opcode opcode,
                                    std::uint64_t remote_address, std::uint32_t remote_key,
                                    std::uint32_t length_bytes) {
  const WorkRequest request{.local = local_.data(),
                            .length_bytes = length_bytes,
                            .local_key = local_key(),
                            .remote_address = remote_address,
                            .remote_key = remote_key,
                            .opcode = opcode,
                            .operands = {.atomic = {.compare_or_add = 1, .swap = 2}}};
  const WorkRequest* const chain = &request;
  if (const auto posted = lane.post({&chain, 1}, sequence_++); posted.taken != 1)
    throw Exception{Error{Code::kProvider, "post"}.with_errno(posted.error)};
  for (Patience patience{20s}; !patience.over();) {
    std::array<transport::LaneCompletion, 1> found;
    if (lane.poll(found) == 1) return found[0].status;
  }
  throw Exception{Error{Code::kTimedOut, "raw request"}};
}

void RawSession::send_control(std::vector<std::byte> bytes) {
  endpoint_->send({.bytes = std::move(bytes), .descriptors = {}}, Clock::now() + 10s).value();
}

bool RawSession::ended(control::Event::Ending* why) {
  for (Patience patience{10s}; !patience.over();) {
    const auto message = endpoint_->receive();
    if (!message) return true;
    if (message->has_value()) {
      const auto envelope = control::decode((*message)->bytes);
      if (why != nullptr && envelope && envelope->event().has_ending())
        *why = envelope->event().ending();
      continue;
    }
    pollfd event{.fd = endpoint_->event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&event, 1, 100);
  }
  return false;
}

}  // namespace remora::test
