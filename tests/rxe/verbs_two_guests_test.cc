#include <cstdlib>
#include <thread>

#include "verbs_connection.h"

namespace remora::test {
namespace {

constexpr std::uint16_t kPort = 7571;
constexpr int kRounds = 20;
constexpr std::size_t kLength = std::size_t{16} * 1024;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The same program in both guests: guest 0 serves, guest 1 is the client.
class VerbsTwoGuests : public VerbsConnection {
 protected:
  void SetUp() override {
    if (environment("REMORA_VM_GUESTS") != "2")
      GTEST_SKIP() << "needs two guests (REMORA_VM_GUESTS=2)";
    RxeTest::SetUp();
  }
  static bool serving() { return environment("REMORA_VM_GUEST") == "0"; }
  static verbs::Address server() {
    return verbs::Address::parse(
               environment(serving() ? "REMORA_VM_ADDRESS" : "REMORA_VM_PEER_ADDRESS"), kPort)
        .value();
  }

  void serve() {
    auto listener = verbs::ConnectionListener::bind(server());
    ASSERT_OK(listener);
    auto request = listener->wait_request(verbs::deadline_in(std::chrono::seconds{60}));
    ASSERT_OK(request);
    EXPECT_EQ(text_of(request->private_data()), "hello from the other guest");
    EXPECT_EQ(request->peer_address().host(), environment("REMORA_VM_PEER_ADDRESS"));
    auto rig = Rig::create(request->device());
    ASSERT_OK(rig);
    ASSERT_OK(request->create_queue_pair(rig->builder()));
    ASSERT_OK(request->queue_pair().post_receive(1, verbs::LocalSlice{}));
    const auto where = rig->memory->remote().to_wire();
    auto connection = std::move(*request).accept(soon(), {.private_data = where});
    ASSERT_OK(connection);
    const auto event = connection->wait_event(verbs::deadline_in(std::chrono::seconds{60}));
    ASSERT_OK(event);
    EXPECT_EQ(event->kind, verbs::ConnectionEvent::Kind::kDisconnected);
    EXPECT_TRUE(rig->complete(1)[0].flushed());
    EXPECT_EQ(rig->word(0), static_cast<std::uint64_t>(kRounds)) << "the client's fetch-adds";
  }

  void reach() {
    Result<Client> side = Error{Code::kInternal};
    Result<verbs::Connection> connection = Error{Code::kInternal};
    const auto give_up = verbs::deadline_in(std::chrono::seconds{40});
    do {  // the other guest may not listen yet
      side = client(server());
      if (side)
        connection = side->connector.connect(
            soon(), {.private_data = bytes_of("hello from the other guest")});
      if (!connection) std::this_thread::sleep_for(std::chrono::milliseconds{200});
    } while (!connection && std::chrono::steady_clock::now() < give_up);
    ASSERT_OK(connection);
    const auto remote = verbs::RemoteSlice::from_wire(
        side->connector.answer()->private_data.bytes().first(verbs::RemoteSlice::kWireBytes));
    ASSERT_OK(remote);
    Rig& rig = side->rig;
    for (unsigned round = 0; round < kRounds; ++round) {
      rig.fill(0, kLength, round + 1);
      auto batch = connection->queue_pair().start();
      batch.write(1, rig.memory->slice(0, kLength), remote->slice(4096, kLength)).unsignaled();
      batch.read(2, rig.memory->slice(kLength, kLength), remote->slice(4096, kLength)).unsignaled();
      batch.fetch_add(3, rig.memory->slice(2 * kLength, 8), remote->slice(0, 8), 1);
      ASSERT_OK(batch.post());
      const auto done = rig.complete(1);
      ASSERT_TRUE(done[0].ok()) << done[0];
      EXPECT_EQ(std::memcmp(rig.at(0), rig.at(kLength), kLength), 0);
      EXPECT_EQ(rig.word(2 * kLength), round);
    }
    ASSERT_OK(connection->disconnect());
  }
};

TEST_F(VerbsTwoGuests, WriteReadAndCount) {
  if (serving())
    serve();
  else
    reach();
}

}  // namespace
}  // namespace remora::test
