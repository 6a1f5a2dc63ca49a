/// A client of protocol version 1, with a frozen copy of its messages, and today's server.

#include <array>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/server.h>

#include "raw_channel.h"
#include "remora_control_v1.pb.h"
#include "support/eventually.h"
#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

namespace v1 = control_v1;
using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

constexpr std::uint32_t kMagic = 0x41524d52;

class VersionOneTest : public testing::Test {
 protected:
  VersionOneTest() {
    const config::ServerConfig config = server_config(TransportKind::kTcp);
    server_ = Server::start(config).value();
    address_ = {config.listen.address, server_->port()};
    channel_.emplace(address_);
  }
  v1::Reply ask(const v1::Request& request) {
    v1::Envelope envelope;
    envelope.set_magic(kMagic);
    envelope.set_id(++id_);
    *envelope.mutable_request() = request;
    Bytes bytes(envelope.ByteSizeLong());
    envelope.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
    const auto answer = channel_->ask(std::move(bytes));
    v1::Envelope reply;
    EXPECT_TRUE(answer && reply.ParseFromArray(answer->data(), static_cast<int>(answer->size())));
    EXPECT_EQ(reply.magic(), kMagic);
    EXPECT_EQ(reply.id(), id_);
    return reply.reply();
  }
  v1::Welcome shake_hands() {
    v1::Request request;
    v1::Hello& hello = *request.mutable_hello();
    hello.set_version_oldest(1);
    hello.set_version_newest(1);
    hello.set_auth(v1::AUTH_NONE);
    hello.set_client_name("old");
    return ask(request).hello();
  }

  RuntimeDir folder_;
  std::optional<Server> server_;
  ServerAddress address_;
  std::optional<RawChannel> channel_;
  std::uint64_t id_ = 0;
};

TEST_F(VersionOneTest, IsWelcomeInItsOwnVersion) {
  const v1::Welcome welcome = shake_hands();
  EXPECT_EQ(welcome.version(), 1U);
  EXPECT_NE(welcome.session_id(), 0U);
  EXPECT_NE(welcome.lane_secret(), 0U);
  EXPECT_EQ(welcome.pool_bytes(), ServerOptions{}.pool_bytes);
  ASSERT_EQ(welcome.transports_size(), 1);
  EXPECT_EQ(welcome.transports(0), 3U);
}

TEST_F(VersionOneTest, EveryRequestIsServed) {
  const v1::Welcome welcome = shake_hands();
  v1::Request request;
  v1::Region& wanted = *request.mutable_create()->mutable_region();
  wanted.set_name("r");
  wanted.set_size_bytes(1_MiB);
  wanted.set_block_bytes(4096);
  wanted.set_rights(7);
  wanted.set_atomic_domain("auto");
  const v1::Region made = ask(request).create().region();
  EXPECT_EQ(made.name(), "r");
  EXPECT_EQ(made.atomic_domain(), "cpu");
  EXPECT_EQ(made.extent_count(), 4U);

  request.Clear();
  request.mutable_open()->set_name("r");
  request.mutable_open()->set_rights(7);
  const v1::OpenReply opened = ask(request).open();
  ASSERT_GE(opened.extents_size(), 1);
  std::uint64_t length_bytes = 0;
  for (const v1::Extent& extent : opened.extents()) length_bytes += extent.length_bytes();
  EXPECT_EQ(length_bytes, 1_MiB);

  // The keys of the grant work on a lane of that session.
  auto lane = channel_->endpoint()
                  .open_lane({.session_id = welcome.session_id(), .secret = welcome.lane_secret()},
                             16, Clock::now() + 10s)
                  .value();
  const transport::WorkRequest add{.length_bytes = 8,
                                   .remote_address = opened.extents(0).address(),
                                   .remote_key = opened.extents(0).key(),
                                   .opcode = transport::Opcode::kFetchAdd,
                                   .operands = {.atomic = {.compare_or_add = 5}}};
  const transport::WorkRequest* const chain = &add;
  ASSERT_EQ(lane->post({&chain, 1}, 0).taken, 1U);
  std::array<transport::LaneCompletion, 1> found{};
  ASSERT_TRUE(eventually([&] { return lane->poll(found) != 0; }));
  EXPECT_EQ(found[0].status, CompletionStatus::kSuccess);

  request.Clear();
  request.mutable_extents()->set_grant_id(opened.grant_id());
  request.mutable_extents()->set_first(1);
  EXPECT_EQ(ask(request).extents().extents_size(), static_cast<int>(made.extent_count()) - 1);
  request.Clear();
  request.mutable_stat()->set_name("r");
  EXPECT_EQ(ask(request).stat().region().open_count(), 1U);
  request.Clear();
  request.mutable_list();
  EXPECT_EQ(ask(request).list().regions_size(), 1);
  request.Clear();
  request.mutable_ping();
  EXPECT_TRUE(ask(request).has_ping());
  request.Clear();
  request.mutable_remove()->set_name("r");
  const v1::Failure busy = ask(request).failure();
  EXPECT_EQ(busy.code(), static_cast<std::uint32_t>(Code::kBusy));
  request.Clear();
  request.mutable_close()->set_grant_id(opened.grant_id());
  EXPECT_TRUE(ask(request).has_close());
  request.Clear();
  request.mutable_remove()->set_name("r");
  EXPECT_TRUE(ask(request).has_remove());
  lane->close();  // ends the session
}

TEST_F(VersionOneTest, FailuresSayWhatTheySaid) {
  shake_hands();
  v1::Request request;
  request.mutable_stat()->set_name("none");
  const v1::Failure failure = ask(request).failure();
  EXPECT_EQ(failure.code(), static_cast<std::uint32_t>(Code::kUnknownRegion));
  EXPECT_EQ(failure.subject(), "none");
}

TEST_F(VersionOneTest, IsRefusedWhereThereAreKeys) {
  server_->stop();
  config::ServerConfig config = server_config(TransportKind::kTcp);
  config.auth = config::Auth::kKeys;
  config.clients.resize(1);
  config.clients[0].name = "old";
  config.clients[0].key = config::SecretKey::generate().value();
  server_ = Server::start(config).value();
  channel_.emplace(ServerAddress{config.listen.address, server_->port()});
  v1::Request request;
  v1::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(1);
  hello.set_version_newest(1);
  hello.set_auth(v1::AUTH_NONE);
  hello.set_client_name("old");
  const v1::Failure failure = ask(request).failure();
  EXPECT_EQ(failure.code(), static_cast<std::uint32_t>(Code::kConnectionRefused));
  EXPECT_EQ(failure.reason(), static_cast<std::uint32_t>(Reason::kAuthentication));
}

}  // namespace
}  // namespace remora::test
