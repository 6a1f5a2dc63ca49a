/// With keys: the server limits the access of clients to each other's regions, and their bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>

#include "support/expect.h"
#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using config::SecretKey;
using ::testing::ElementsAre;

class AuthAccessTest : public testing::Test {
 protected:
  struct Client {
    SecretKey key = SecretKey::generate().value();
    std::optional<Engine> engine{};
    std::optional<Session> session{};
  };
  void SetUp() override {
    config::ServerConfig config = server_config(TransportKind::kTcp);
    config.auth = config::Auth::kKeys;
    const auto add = [&](const std::string& name, const Client& client, bool create, bool admin,
                         std::uint64_t quota_bytes) {
      config::ClientConfig made;
      made.name = name;
      made.key = client.key;
      made.create = create;
      made.admin = admin;
      made.quota_bytes = quota_bytes;
      config.clients.push_back(std::move(made));
    };
    add("alice", alice_, true, false, 64_KiB);
    add("bob", bob_, false, false, 0);
    add("root", root_, false, true, 0);
    config.regions.resize(2);
    config.regions[0].name = "all";
    config.regions[0].size_bytes = 4_KiB;
    config.regions[0].rights = {.read = true, .write = true, .atomic = false};
    config.regions[1].name = "listed";
    config.regions[1].size_bytes = 4_KiB;
    config.regions[1].access = {{.client = "bob", .read = true, .admin = true},
                                {.client = "alice", .read = true, .write = true}};
    server_ = Server::start(config).value();
    uri_ = "remora://" + config.listen.address + ":" + std::to_string(server_->port());
    connect("alice", alice_);
    connect("bob", bob_);
    connect("root", root_);
  }
  void connect(const std::string& name, Client& client) const {
    EngineOptions options;
    options.client_name = name;
    options.key = client.key;
    client.engine = Engine::open(options).value();
    client.session = client.engine->connect(uri_ + "?transport=tcp").value();
  }
  [[nodiscard]] Result<Region> open(const Client& client, const std::string& region,
                                    Rights rights) const {
    return client.engine->open_region(uri_ + "/" + region + "?transport=tcp", rights);
  }
  static std::vector<std::string> names(const Client& client) {
    std::vector<std::string> found;
    for (const RegionInfo& region : client.session->regions().value()) found.push_back(region.name);
    return found;
  }
  template <typename T>
  static void expect_code(const T& result, Code code) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), code) << result.error();
  }

  RuntimeDir folder_;
  Client alice_;
  Client bob_;
  Client root_;
  std::optional<Server> server_;
  std::string uri_;
};

TEST_F(AuthAccessTest, RegionsWithoutAListAreForAllWithinTheirRights) {
  EXPECT_TRUE(open(bob_, "all", Rights::kReadWrite).ok());
  expect_code(open(bob_, "all", Rights::kAll), Code::kNoRight);
  expect_code(bob_.session->remove_region("all"), Code::kNoRight);
}

TEST_F(AuthAccessTest, AccessListsGiveEachClientItsRights) {
  EXPECT_TRUE(open(alice_, "listed", Rights::kReadWrite).ok());
  expect_code(open(alice_, "listed", Rights::kAtomic), Code::kNoRight);
  EXPECT_TRUE(open(bob_, "listed", Rights::kRead).ok());
  expect_code(open(bob_, "listed", Rights::kWrite), Code::kNoRight);
  expect_code(alice_.session->remove_region("listed"), Code::kNoRight);
  EXPECT_TRUE(ok(bob_.session->remove_region("listed")));
}

TEST_F(AuthAccessTest, ClientWithoutTheRightToCreateIsRefused) {
  expect_code(bob_.session->create_region({.name = "b", .size_bytes = 4_KiB}), Code::kNoRight);
  EXPECT_TRUE(root_.session->create_region({.name = "b", .size_bytes = 4_KiB}).ok());
}

TEST_F(AuthAccessTest, WhatAClientCreatesIsItsOwn) {
  ASSERT_TRUE(alice_.session->create_region({.name = "mine", .size_bytes = 4_KiB}).ok());
  EXPECT_EQ(alice_.session->stat("mine")->owner, "alice");
  EXPECT_TRUE(open(alice_, "mine", Rights::kAll).ok());
  expect_code(open(bob_, "mine", Rights::kRead), Code::kUnknownRegion);
  expect_code(bob_.session->stat("mine"), Code::kUnknownRegion);
  expect_code(bob_.session->remove_region("mine"), Code::kUnknownRegion);
  EXPECT_THAT(names(alice_), ElementsAre("all", "listed", "mine"));
  EXPECT_THAT(names(bob_), ElementsAre("all", "listed"));
  // The server's answer is, word for word, that about a region which does not exist.
  std::string mine = bob_.session->stat("mine").error().message();
  const std::string none = bob_.session->stat("none").error().message();
  EXPECT_EQ(mine.replace(mine.find("mine"), 4, "none"), none);
  // An admin may open and remove the region.
  EXPECT_THAT(names(root_), ElementsAre("all", "listed", "mine"));
  EXPECT_TRUE(open(root_, "mine", Rights::kAll).ok());
  EXPECT_TRUE(ok(root_.session->remove_region("mine")));
}

TEST_F(AuthAccessTest, AnOwnerMayLetOthersIn) {
  RegionSpec spec{.name = "shared", .size_bytes = 4_KiB};
  spec.access = {{.client = "bob", .rights = Rights::kRead}};
  ASSERT_TRUE(alice_.session->create_region(spec).ok());
  const Region theirs = open(bob_, "shared", Rights::kRead).value();
  const Region own = open(alice_, "shared", Rights::kAll).value();
  ASSERT_TRUE(ok(own.fetch_add(ByteOffset{0}, 7)));
  std::array<std::byte, 8> seen{};
  ASSERT_TRUE(ok(theirs.read(ByteOffset{0}, seen)));
  EXPECT_EQ(seen[0], std::byte{7});
  expect_code(open(bob_, "shared", Rights::kWrite), Code::kNoRight);
  EXPECT_EQ(alice_.session->stat("shared")->access, spec.access);
  EXPECT_TRUE(bob_.session->stat("shared")->access.empty()) << "only admins see the access list";
  spec.name = "wrong";
  for (const RegionAccess& wrong :
       {RegionAccess{.client = "a b", .rights = Rights::kRead}, RegionAccess{.client = "bob"}}) {
    spec.access = {wrong};
    expect_code(alice_.session->create_region(spec), Code::kInvalidArgument);
  }
  spec.access.assign(kMaxRegionAccess + 1, {.client = "*", .rights = Rights::kRead});
  expect_code(alice_.session->create_region(spec), Code::kLimitExceeded);
}

TEST_F(AuthAccessTest, QuotaIsOfWhatAClientHasCreated) {
  const auto usage = [&] { return alice_.session->usage().value(); };
  EXPECT_EQ(usage().client_bytes, 0U);
  EXPECT_EQ(usage().client_quota_bytes, 64_KiB);
  // A region of 64 bytes takes a page of the pool.
  ASSERT_TRUE(
      alice_.session->create_region({.name = "a", .size_bytes = 64, .block_bytes = 64}).ok());
  EXPECT_EQ(usage().client_bytes, 4_KiB);
  const auto refused = alice_.session->create_region({.name = "b", .size_bytes = 64_KiB});
  expect_code(refused, Code::kLimitExceeded);
  EXPECT_EQ(refused.error().asked(), 64_KiB);
  EXPECT_EQ(refused.error().allowed(), 60_KiB);
  EXPECT_EQ(refused.error().subject(), "bytes left of the quota of alice");
  ASSERT_TRUE(alice_.session->create_region({.name = "b", .size_bytes = 60_KiB}).ok());
  expect_code(alice_.session->create_region({.name = "c", .size_bytes = 64, .block_bytes = 64}),
              Code::kLimitExceeded);
  // The quota counts the regions of all sessions of the client. A removed region is free again.
  Client again;
  again.key = alice_.key;
  connect("alice", again);
  expect_code(again.session->create_region({.name = "c", .size_bytes = 4_KiB}),
              Code::kLimitExceeded);
  ASSERT_TRUE(ok(alice_.session->remove_region("a")));
  EXPECT_TRUE(again.session->create_region({.name = "c", .size_bytes = 4_KiB}).ok());
  EXPECT_EQ(usage().client_bytes, 64_KiB);
  EXPECT_EQ(usage().sessions, 4U);
}

TEST_F(AuthAccessTest, TheApplicationsRegionsHaveNoOwnerAndMayHaveAList) {
  RegionSpec spec{.name = "app", .size_bytes = 4_KiB};
  spec.access = {{.client = "*", .rights = Rights::kRead}};
  ASSERT_TRUE(server_->create_region(spec).ok());
  EXPECT_TRUE(open(bob_, "app", Rights::kRead).ok());
  expect_code(open(alice_, "app", Rights::kWrite), Code::kNoRight);
  EXPECT_EQ(alice_.session->stat("app")->owner, "");
}

TEST(AccessWithoutKeys, IsRefused) {
  const RuntimeDir folder;
  const config::ServerConfig config = server_config(TransportKind::kTcp);
  const Server server = Server::start(config).value();
  const Engine engine = Engine::open({}).value();
  const Session session = engine
                              .connect("remora://" + config.listen.address + ":" +
                                       std::to_string(server.port()) + "?transport=tcp")
                              .value();
  RegionSpec spec{.name = "r", .size_bytes = 4_KiB};
  spec.access = {{.client = "bob", .rights = Rights::kRead}};
  const auto made = session.create_region(spec);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kUnsupported) << made.error();
  EXPECT_EQ(session.usage()->client_quota_bytes, 0U);
  EXPECT_EQ(server.set_clients({}).error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace remora::test
