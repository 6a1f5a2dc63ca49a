/// The server tells a client why it ends the session, if the client could not know: by its last
/// event. The engine passes the reason to the handlers.

#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/engine/engine.h>
#include <remora/engine/server.h>

#include "raw_channel.h"
#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/server.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

/// The reasons that the handlers of a session got, in order.
class ToldReasons {
 public:
  [[nodiscard]] SessionHandlers handlers() {
    SessionHandlers made;
    made.on_interrupted = [this](const SessionEvent& event) { add("interrupted", event.reason); };
    made.on_resumed = [this](const SessionEvent& event) { add("resumed", event.reason); };
    made.on_lost = [this](const SessionEvent& event) { add("lost", event.reason); };
    return made;
  }
  /// The reason of the first call of `what`. None: it was not called within 20 s.
  [[nodiscard]] std::optional<Reason> reason_of(const std::string& what) {
    for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(10ms)) {
      const std::lock_guard lock{mutex_};
      for (const auto& [name, reason] : told_)
        if (name == what) return reason;
    }
    return std::nullopt;
  }

 private:
  void add(const char* what, Reason reason) {
    const std::lock_guard lock{mutex_};
    told_.emplace_back(what, reason);
  }
  std::mutex mutex_;
  std::vector<std::pair<std::string, Reason>> told_;
};

class SessionEndingTest : public testing::Test {
 protected:
  void TearDown() override {
    if (server_) server_->stop();
  }
  void start(const config::ServerConfig& config) {
    server_ = Server::start(config).value();
    address_ = {config.listen.address, server_->port()};
    server_->create_region({.name = "target", .size_bytes = 1_MiB}).value();
  }
  [[nodiscard]] std::string uri() const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) +
           "/target?transport=tcp";
  }
  static config::ServerConfig plain() { return server_config(TransportKind::kTcp); }
  /// Waits until the server hangs up, at most 25 s. The reason of its ending event, if it sends
  /// one.
  static std::optional<control::Event::Ending> last_word(transport::ClientEndpoint& endpoint,
                                                         bool& hung_up) {
    std::optional<control::Event::Ending> heard;
    hung_up = false;
    for (Patience patience{25s}; !hung_up && !patience.over();) {
      const auto message = endpoint.receive();
      hung_up = !message.ok();
      if (message && message->has_value()) {
        const auto envelope = control::decode((*message)->bytes);
        if (envelope && envelope->event().has_ending()) heard = envelope->event().ending();
        continue;
      }
      pollfd event{.fd = endpoint.event_fd(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, 50);
    }
    return heard;
  }
  static testing::AssertionResult says(const std::optional<control::Event::Ending>& heard,
                                       Code code, Reason reason) {
    if (!heard) return testing::AssertionFailure() << "it said nothing";
    if (heard->code() == static_cast<std::uint32_t>(code) &&
        heard->reason() == static_cast<std::uint32_t>(reason) && !heard->subject().empty())
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << heard->ShortDebugString();
  }

  std::optional<Server> server_;
  ServerAddress address_;
  ToldReasons told_;  // outlives every engine
};

TEST_F(SessionEndingTest, NonsenseIsSaidToBeSuch) {
  start(plain());
  RawSession session{address_, TransportKind::kTcp};
  session.send_control(noise(100, 1));
  bool hung_up = false;
  EXPECT_TRUE(says(last_word(session.endpoint(), hung_up), Code::kProtocol, Reason::kNone));
  EXPECT_TRUE(hung_up);
}

TEST_F(SessionEndingTest, ClientThatFallsSilentIsTold) {
  config::ServerConfig config = plain();
  config.limits.session_lease = 3s;
  start(config);
  RawSession session{address_, TransportKind::kTcp};
  bool hung_up = false;
  EXPECT_TRUE(says(last_word(session.endpoint(), hung_up), Code::kConnectionLost, Reason::kSilent));
  EXPECT_TRUE(hung_up);
}

TEST_F(SessionEndingTest, PeersBeforeTheHandshakeAreToldNothing) {
  start(plain());
  RawChannel peer{address_};
  peer.say(noise(100, 2));
  bool hung_up = false;
  EXPECT_FALSE(last_word(peer.endpoint(), hung_up));
  EXPECT_TRUE(hung_up);
}

TEST_F(SessionEndingTest, ClientsOfVersionOneAreToldNothing) {
  start(plain());
  RawChannel old{address_};
  control::Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(1);
  hello.set_version_newest(1);
  hello.set_auth(control::AUTH_NONE);
  hello.set_client_name("old");
  ASSERT_TRUE(lets_in(old.ask(RawChannel::request(request, 1))));
  old.say(noise(100, 3));
  bool hung_up = false;
  EXPECT_FALSE(last_word(old.endpoint(), hung_up));
  EXPECT_TRUE(hung_up);
}

TEST_F(SessionEndingTest, ClientThatIsTakenOffTheListHearsThatItIs) {
  const config::SecretKey key = config::SecretKey::generate().value();
  config::ServerConfig config = plain();
  config.auth = config::Auth::kKeys;
  config::ClientConfig client;
  client.name = "guest";
  client.key = key;
  client.create = true;
  config.clients.push_back(client);
  start(config);
  EngineOptions options;
  options.client_name = "guest";
  options.key = key;
  options.handlers = told_.handlers();
  const Engine engine = Engine::open(options).value();
  const Session session = engine.connect(uri()).value();
  client.name = "other";
  ASSERT_TRUE(ok(server_->set_clients({client})));
  EXPECT_EQ(told_.reason_of("interrupted"), Reason::kAuthentication);
  EXPECT_EQ(told_.reason_of("lost"), Reason::kAuthentication);
}

/// A client that waits for a reply for longer than its lease does not lapse.
TEST_F(SessionEndingTest, SilenceCountsFromTheAnswerThatIsWaitedFor) {
  config::ServerConfig config = plain();
  config.limits.session_lease = 2s;
  config.limits.revoke_grace = 6s;
  start(config);
  // The holder sends pings, and never acknowledges, so that its grant stays until the grace is
  // over.
  RawSession stubborn{address_, TransportKind::kTcp};
  (void)stubborn.open("target", Rights::kAll);
  std::atomic<bool> over{false};
  std::thread pings{[&] {
    control::Request request;
    request.mutable_ping();
    for (std::uint64_t id = 100; !over; ++id, std::this_thread::sleep_for(200ms))
      stubborn.send_control(RawChannel::request(request, id));
  }};
  RawSession session{address_, TransportKind::kTcp};
  const auto began = Clock::now();
  const RawSession::Grant fenced = session.fence("target", Rights::kAll);
  over = true;
  pings.join();
  EXPECT_GE(Clock::now() - began, 5s) << "the answer came at once";
  const transport::WireExtent& extent = fenced.extents.at(0);
  EXPECT_EQ(session.run(transport::Opcode::kRead, extent.remote_address, extent.remote_key, 64),
            CompletionStatus::kSuccess);
}

}  // namespace
}  // namespace remora::test
