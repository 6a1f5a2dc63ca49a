// A server and clients that say anything: each request is answered once at most, nothing is told to
// peers before their handshake, all that it says can be read, and nothing is left when the clients
// are gone.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control_fuzz.h"
#include "fake_net.h"
#include "protocol/messages.h"

namespace remora::fuzz {
namespace {

using control::Envelope;
using control::Reply;
using control::Request;

constexpr std::size_t kClients = 4;

config::ServerConfig limited_config() {
  config::ServerConfig config = server_config(std::uint64_t{2} << 20U);
  config.auth = config::Auth::kNone;
  config.limits.sessions_max = 3;
  config.limits.regions_max = 6;
  config.limits.session_regions_max = 5;
  config.limits.revoke_grace = std::chrono::milliseconds{100};
  config.limits.drain_timeout = std::chrono::nanoseconds{0};
  return config;
}

FuzzServer& server() {
  static FuzzServer s_server{limited_config()};
  return s_server;
}

/// One of the clients, as far as the fuzzer follows it.
struct Client {
  std::shared_ptr<ServerWire> wire;
  std::map<std::uint64_t, std::size_t> asked;  ///< by id: so often, less what was answered
  std::uint64_t events = 0;
  bool handshake_complete = false;
};

class ServerScript {
 public:
  void run(const Script& script) {
    for (const Step& step : script.steps) {
      Client& client = clients_[step.what % kClients];
      if ((step.what >> 2U) % 16 == 0) {
        leave(client);
        continue;
      }
      if (client.wire == nullptr || client.wire->shut()) {
        leave(client);
        client.wire = server().connect();
      }
      const bool as_it_is = (step.what & 0x80U) != 0;
      say(client, as_it_is ? step.bytes : mended(step.bytes));
      for (Client& each : clients_) hear(each);
    }
    server().end_run();
  }

 private:
  static void leave(Client& client) {
    if (client.wire != nullptr) client.wire->hang_up();
    client = {};
  }

  /// What the server draws at random is put where the input means it: 1 is that of the first
  /// client that was let in, and so on.
  std::string mended(const std::string& bytes) {
    Envelope envelope;
    if (!envelope.ParseFromString(bytes)) return bytes;
    envelope.set_magic(control::kMagic);
    if (envelope.id() == 0) envelope.set_id(next_id_++);
    if (envelope.request().has_hello() && envelope.request().hello().has_resume()) {
      auto& resume = *envelope.mutable_request()->mutable_hello()->mutable_resume();
      const std::uint64_t which = resume.session_id();
      if (which > 0 && which <= welcomes_.size()) {
        resume.set_session_id(welcomes_[which - 1].session_id());
        if (resume.lane_secret() == 0) resume.set_lane_secret(welcomes_[which - 1].lane_secret());
      }
    }
    if (envelope.request().has_end_session()) {
      auto& end = *envelope.mutable_request()->mutable_end_session();
      if (const std::uint64_t which = end.session_id(); which > 0 && which <= welcomes_.size())
        end.set_session_id(welcomes_[which - 1].session_id());
    }
    return envelope.SerializePartialAsString();
  }

  static void say(Client& client, const std::string& bytes) {
    Bytes message = bytes_of(bytes);
    const auto envelope = control::decode(message);
    if (envelope && envelope->has_request()) ++client.asked[envelope->id()];
    server().say(*client.wire, std::move(message));
  }

  void hear(Client& client) {
    if (client.wire == nullptr) return;
    for (const Bytes& message : client.wire->hear()) {
      require(message.size() <= transport::kMaxControlMessageBytes, "messages are bounded");
      const auto envelope = control::decode(message);
      require(envelope.ok(), "what a server says can be read");
      if (envelope->has_event())
        event(client, *envelope);
      else
        reply(client, *envelope);
    }
  }

  static void event(Client& client, const Envelope& envelope) {
    require(client.handshake_complete, "only a client that was let in is told of events");
    require(envelope.event().id() == envelope.id() && envelope.id() > client.events,
            "events are numbered");
    client.events = envelope.id();
  }

  void reply(Client& client, const Envelope& envelope) {
    require(envelope.has_reply(), "a server does not ask");
    const auto asked = client.asked.find(envelope.id());
    require(asked != client.asked.end() && asked->second > 0, "an answer is to a request, once");
    --asked->second;
    const Reply& reply = envelope.reply();
    if (reply.has_hello()) {
      require(!client.handshake_complete, "a client is let in once");
      client.handshake_complete = true;
      welcomes_.push_back(reply.hello());
      // What it is still to be told goes on where it was.
      if (reply.hello().resumed()) client.events = 0;
    } else if (!reply.has_failure()) {
      require(client.handshake_complete, "a client that was not let in is told nothing");
    }
    if (reply.has_open()) opened(reply.open());
    if (reply.has_fence()) opened(reply.fence().opened());
    if (reply.has_list())
      for (const control::Region& region : reply.list().regions()) described(region);
    if (reply.has_stat()) described(reply.stat().region());
    if (reply.has_create()) described(reply.create().region());
    if (reply.has_sessions())
      require(
          static_cast<std::size_t>(reply.sessions().sessions_size()) <= control::kSessionsPerPage,
          "a page of sessions is bounded");
    if (reply.has_usage())
      require(reply.usage().pool_used_bytes() + reply.usage().pool_freeing_bytes() <=
                  reply.usage().pool_bytes(),
              "no more is used than there is");
  }

  static void described(const control::Region& region) {
    require(control::to_info(region).ok(), "what a server says of a region is true of one");
  }

  static void opened(const control::OpenReply& opened) {
    described(opened.region());
    require(opened.grant_id() != 0 && opened.extents_size() > 0, "a grant reaches something");
    std::uint64_t bytes = 0;
    for (const control::Extent& extent : opened.extents()) bytes += extent.length_bytes();
    require(bytes == opened.region().size_bytes() ||
                opened.region().extent_count() > control::kExtentsPerPage,
            "a grant reaches the region and no more");
  }

  std::array<Client, kClients> clients_;
  std::vector<control::Welcome> welcomes_;
  std::uint64_t next_id_ = 1000;
};

}  // namespace

void fuzz_server(const Script& script) { ServerScript{}.run(script); }

}  // namespace remora::fuzz
