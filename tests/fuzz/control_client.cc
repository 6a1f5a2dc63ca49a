// A client and a server that says anything: every call ends, with what makes sense or with an
// error, and what is opened reaches the region and no more.

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "client/region/region_grant.h"
#include "control_fuzz.h"
#include "fake_net.h"
#include "protocol/messages.h"

namespace remora::fuzz {
namespace {

using namespace std::chrono_literals;
using control::Envelope;
using control::Reply;
using control::Request;
using detail::EngineCore;
using detail::SessionCore;

constexpr std::size_t kMaxGood = 64;

std::shared_ptr<EngineCore> engine(bool comes_back) {
  static const auto s_make = [](std::chrono::nanoseconds reconnect_for) {
    EngineOptions options = engine_options();
    options.reconnect_for = reconnect_for;
    options.lane_depth = 8;
    return EngineCore::create(std::move(options)).value();
  };
  static const auto s_once = s_make(0s);
  static const auto s_again = s_make(200ms);
  return comes_back ? s_again : s_once;
}

/// What a good server answers.
Reply good_reply(const Request& request) {
  Reply reply;
  const auto region = [](control::Region& made, const std::string& name) {
    made.set_name(name.empty() ? "r" : name);
    made.set_size_bytes(8192);
    made.set_block_bytes(4096);
    made.set_rights(7);
    made.set_atomic_domain("cpu");
    made.set_extent_count(2);
  };
  const auto open = [&](control::OpenReply& made, const std::string& name) {
    region(*made.mutable_region(), name);
    made.set_grant_id(3);
    for (std::uint32_t i = 0; i < 2; ++i) {
      control::Extent& extent = *made.add_extents();
      extent.set_length_bytes(4096);
      extent.set_address(std::uint64_t{4096} * i);
      extent.set_key(i + 1);
    }
  };
  switch (request.body_case()) {
    case Request::kHello: {
      control::Welcome& welcome = *reply.mutable_hello();
      welcome.set_version(2);
      welcome.set_memory_id(1);
      welcome.set_session_id(7);
      welcome.set_lane_secret(9);
      welcome.set_lease_ms(60000);
      welcome.set_keep_ms(10000);
      welcome.set_resumed(request.hello().has_resume());
      welcome.set_administration(true);
      break;
    }
    case Request::kCreate: region(*reply.mutable_create()->mutable_region(), "r"); break;
    case Request::kOpen: open(*reply.mutable_open(), request.open().name()); break;
    case Request::kFence: open(*reply.mutable_fence()->mutable_opened(), "r"); break;
    case Request::kExtents: reply.mutable_extents()->add_extents()->set_length_bytes(4096); break;
    case Request::kClose: reply.mutable_close(); break;
    case Request::kList: region(*reply.mutable_list()->add_regions(), "r"); break;
    case Request::kStat: region(*reply.mutable_stat()->mutable_region(), "r"); break;
    case Request::kRemove: reply.mutable_remove(); break;
    case Request::kPing: reply.mutable_ping(); break;
    case Request::kNotify: reply.mutable_notify(); break;
    case Request::kResize: region(*reply.mutable_resize()->mutable_region(), "r"); break;
    case Request::kGrantState: reply.mutable_grant_state()->set_holds(true); break;
    case Request::kUsage: reply.mutable_usage(); break;
    case Request::kGoodbye: reply.mutable_goodbye(); break;
    case Request::kEventAck: reply.mutable_event_ack(); break;
    case Request::kReattach: reply.mutable_reattach(); break;
    case Request::kSessions: reply.mutable_sessions()->add_sessions()->set_session_id(8); break;
    case Request::kEndSession: reply.mutable_end_session(); break;
    case Request::kDrain: reply.mutable_drain()->set_draining(true); break;
    case Request::kProve:
    case Request::BODY_NOT_SET: break;
  }
  return reply;
}

Bytes message_of(std::uint64_t id, Reply reply) {
  Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_reply() = std::move(reply);
  return bytes_of(envelope.SerializePartialAsString());
}

/// The server of one run: answers as the script says, then well, then hangs up. Any thread.
class ScriptedServer : public std::enable_shared_from_this<ScriptedServer> {
 public:
  explicit ScriptedServer(const Script& script) : script_{script} {}

  Result<std::unique_ptr<transport::ClientEndpoint>> connect() {
    if (++connections_ > 3) return Error{Code::kConnectionRefused, "fuzz"};
    return client_end(std::make_shared<ClientWire>(
        [self = shared_from_this()](ClientWire& wire, const Bytes& bytes) {
          self->asked(wire, bytes);
        }));
  }

 private:
  void asked(ClientWire& wire, const Bytes& bytes) {
    const std::lock_guard lock{mutex_};
    const auto envelope = control::decode(bytes);
    require(envelope && envelope->has_request(), "a client asks in messages of ours");
    const Request& request = envelope->request();
    while (next_ < script_.steps.size())
      if (take(wire, script_.steps[next_++], envelope->id(), request)) return;
    if (good_++ >= kMaxGood || (script_.flags & 2U) != 0) return wire.hang_up();
    wire.say(message_of(envelope->id(), good_reply(request)));
  }

  /// True: that was the answer.
  static bool take(ClientWire& wire, const Step& step, std::uint64_t id, const Request& request) {
    Envelope envelope;
    const bool message = envelope.ParseFromString(step.bytes);
    if ((step.what & 0x80U) != 0 || !message) {
      wire.say(bytes_of(step.bytes));
      return false;
    }
    envelope.set_magic(control::kMagic);
    switch (step.what % 8) {
      case 0: wire.hang_up(); return true;
      case 1:  // more than was asked, or something else
        if (envelope.id() == 0) envelope.set_id(id);
        wire.say(bytes_of(envelope.SerializePartialAsString()));
        return false;
      case 2:
      case 3:
      case 4: {  // a good answer, changed
        Reply reply = good_reply(request);
        if (envelope.reply().body_case() == reply.body_case() || step.what % 8 == 4) {
          if (step.what % 8 == 3) reply.Clear();
          reply.MergeFrom(envelope.reply());
        }
        wire.say(message_of(id, std::move(reply)));
        return true;
      }
      default:
        envelope.set_id(envelope.has_event() ? std::max<std::uint64_t>(envelope.id(), 1) : id);
        wire.say(bytes_of(envelope.SerializePartialAsString()));
        return envelope.has_reply();
    }
  }

  std::mutex mutex_;
  const Script script_;
  std::size_t next_ = 0;
  std::size_t good_ = 0;
  std::atomic<int> connections_{0};
};

void check_info(const RegionInfo& info) {
  require(config::is_region_name(info.name) && info.size_bytes != 0 && info.block_bytes != 0,
          "what a client is told of a region is true of one");
}

void open(const std::shared_ptr<SessionCore>& session, detail::Opening how) {
  const auto region =
      detail::RegionGrant::open(session, "r", Rights::kAll, "fuzz", deadline_after(kCallMax), how);
  if (!region) return;
  check_info((*region)->info());
  // Every byte of it is somewhere, and nothing else is.
  std::uint64_t bytes = 0;
  for (const transport::WireExtent& extent : (*region)->extents()) {
    require(extent.start_bytes == bytes && extent.length_bytes != 0, "extents follow each other");
    require(extent.length_bytes <= (*region)->info().size_bytes - bytes,
            "extents end with their region");
    bytes += extent.length_bytes;
  }
  require(bytes == (*region)->info().size_bytes, "extents are the whole region");
}

void use(const std::shared_ptr<SessionCore>& core, std::uint8_t first) {
  const Session session{core};
  for (std::uint8_t i = 0; i < 8 && core->connected(); ++i) {
    switch ((first + i) % 8) {
      case 0: open(core, detail::Opening::kOpen); break;
      case 1: open(core, detail::Opening::kFence); break;
      case 2:
        if (const auto list = session.regions(); list)
          for (const RegionInfo& info : *list) check_info(info);
        break;
      case 3:
        if (const auto info = session.stat("r"); info) check_info(*info);
        break;
      case 4:
        if (const auto info = session.create_region({.name = "r", .size_bytes = 8192}); info)
          check_info(*info);
        break;
      case 5: (void)session.remove_region("r", Removal::kNow); break;
      case 6: (void)session.usage(); break;
      default:
        (void)core->notify({.grant_id = 3, .offset_bytes = 0, .length_bytes = 8, .tag = 1},
                           deadline_after(1ms));
    }
  }
}

}  // namespace

void fuzz_client(const Script& script) {
  const auto server = std::make_shared<ScriptedServer>(script);
  const auto began = std::chrono::steady_clock::now();
  auto session =
      start_session(engine((script.flags & 1U) != 0), [server] { return server->connect(); });
  if (session) use(*session, script.mode / 4);
  session = Error{Code::kClosed};
  require(std::chrono::steady_clock::now() - began < kCallMax,
          "no call waits for a server that has hung up");
}

}  // namespace remora::fuzz
