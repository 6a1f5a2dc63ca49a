#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "rxe_child.h"
#include "rxe_rping.h"
#include "verbs_connection.h"

namespace remora::test {
namespace {

using Kind = verbs::ConnectionEvent::Kind;

// --role server ADDRESS: says its port, accepts one client, tells it where its memory is, and says
// what became of it.
int serve(const std::vector<std::string>& arguments) {
  auto listener =
      verbs::ConnectionListener::bind(verbs::Address::parse(arguments.at(0), 0).value()).value();
  std::cout << listener.local_address().port() << std::endl;
  auto request = listener.wait_request(soon()).value();
  auto rig = Rig::create(request.device()).value();
  rig.fill(0, rig.bytes.size(), 99);
  request.create_queue_pair(rig.builder()).value();
  request.queue_pair().post_receive(1, rig.memory->slice(0, 64)).value();
  const auto where = rig.memory->remote().to_wire();
  auto connection = std::move(request).accept(soon(), {.private_data = where}).value();
  std::cout << "established" << std::endl;
  const auto event = connection.wait_event(verbs::deadline_in(std::chrono::seconds{60})).value();
  std::cout << verbs::to_string(event.kind) << " " << rig.complete(1)[0].flushed() << " "
            << rig.word(1024) << std::endl;
  return 0;
}
const RegisterRole serve_role{"server", &serve};

// --role limited BYTES: registers them as a normal user under a locked-memory limit of 64 KiB.
int register_limited(const std::vector<std::string>& arguments) {
  constexpr rlim_t kLimitBytes = rlim_t{64} * 1024;
  const rlimit limit{kLimitBytes, kLimitBytes};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresgid(1000, 1000, 1000) != 0 ||
      ::setresuid(1000, 1000, 1000) != 0)
    return 2;
  const auto device = verbs::devices().value()[0].open();
  if (!device) return std::cout << device.error() << std::endl, 3;
  const auto domain = device->allocate_domain().value();
  std::vector<std::byte> bytes(std::stoul(arguments.at(0)));
  const auto memory = domain.register_bytes(bytes, verbs::Access::kLocalWrite);
  if (memory) return std::cout << "registered" << std::endl, 0;
  std::cout << (memory.error().reason() == Reason::kMemlock) << " " << memory.error().asked() << " "
            << memory.error().allowed() << " " << memory.error() << std::endl;
  return 1;
}
const RegisterRole limited_role{"limited", &register_limited};

class VerbsProcess : public VerbsConnection {
 protected:
  /// A client of `server`, which says its port first.
  Result<Client> client_of(RxeChild& server) {
    const auto port = server.line();
    if (!port) return Error{Code::kNotFound, "the server's port"};
    return client(address(static_cast<std::uint16_t>(std::stoi(*port))));
  }
};

TEST_F(VerbsProcess, TwoProcessesShareMemory) {
  auto server = RxeChild::role("server", {address().host()});
  auto side = client_of(server);
  ASSERT_OK(side);
  auto connection = side->connector.connect(soon());
  ASSERT_OK(connection);
  const auto remote = verbs::RemoteSlice::from_wire(
      side->connector.answer()->private_data.bytes().first(verbs::RemoteSlice::kWireBytes));
  ASSERT_OK(remote);
  side->rig.fill(4096, 4096, 99);  // not the same pattern: the offset is part of it
  auto batch = connection->queue_pair().start();
  batch.read(1, side->rig.memory->slice(0, 1024), remote->slice(0, 1024));
  batch.compare_swap(2, side->rig.memory->slice(2048, 8), remote->slice(1024, 8), 0, 0);
  ASSERT_OK(batch.post());
  for (const auto& done : side->rig.complete(2)) EXPECT_TRUE(done.ok()) << done;
  auto expected = Rig::create(connection->device());
  ASSERT_OK(expected);
  expected->fill(0, expected->bytes.size(), 99);
  EXPECT_EQ(std::memcmp(side->rig.at(0), expected->at(0), 1024), 0);
  const std::uint64_t seen = expected->word(1024);
  EXPECT_EQ(side->rig.word(2048), seen);
  batch.compare_swap(3, side->rig.memory->slice(2048, 8), remote->slice(1024, 8), seen, 4711);
  ASSERT_OK(batch.post());
  EXPECT_TRUE(side->rig.complete(1)[0].ok());
  EXPECT_EQ(server.line(), "established");
  ASSERT_OK(connection->disconnect());
  EXPECT_EQ(server.line(), "disconnected 1 4711");
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(VerbsProcess, KilledPeerDisconnects) {
  auto server = RxeChild::role("server", {address().host()});
  auto side = client_of(server);
  ASSERT_OK(side);
  auto connection = side->connector.connect(soon());
  ASSERT_OK(connection);
  ASSERT_EQ(server.line(), "established");
  server.kill();
  const auto event = connection->wait_event(soon());
  ASSERT_OK(event);
  EXPECT_EQ(event->kind, Kind::kDisconnected);
  EXPECT_EQ(event->error(connection->peer_address()).code(), Code::kConnectionLost);
}

TEST_F(VerbsProcess, SmallMemlockLimitIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  auto small = RxeChild::role("limited", {"4096"});
  EXPECT_EQ(small.line(), "registered");
  EXPECT_EQ(small.wait(), 0);
  auto large = RxeChild::role("limited", {"1048576"});
  const auto told = large.line();
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->starts_with("1 1048576 65536 ")) << *told;
  EXPECT_NE(told->find("ulimit -l unlimited"), std::string::npos) << *told;
  EXPECT_EQ(large.wait(), 1);
}

TEST_F(VerbsProcess, ForkSafetyComesBeforeRegistrations) {
  // In this process registrations were made long ago; a fresh one is needed.
  auto fresh = RxeChild::role("fork-safe", {});
  EXPECT_EQ(fresh.line(), "initialized");
  EXPECT_EQ(fresh.wait(), 0);
}
int fork_safe(const std::vector<std::string>&) {
  const Status made = verbs::initialize_fork_safety();
  const Status again = verbs::initialize_fork_safety();
  if (!made || !again) return std::cout << made.error() << std::endl, 1;
  auto rig = Rig::create(verbs::devices().value()[0].open().value());
  std::cout << (rig ? "initialized" : rig.error().message()) << std::endl;
  return 0;
}
const RegisterRole fork_safe_role{"fork-safe", &fork_safe};

TEST_F(VerbsProcess, ForkSafetyAfterARegistrationIsRefused) {
  auto late = RxeChild::role("fork-late", {});
  const auto told = late.line();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(late.wait(), 0);
  if (*told == "ok") {  // newer libraries ask the kernel first
    ASSERT_EQ(::ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    GTEST_SKIP() << "libibverbs: this kernel copies pinned pages, nothing is needed";
  }
  EXPECT_EQ(*told, "EINVAL");
}
int fork_late(const std::vector<std::string>&) {
  const auto rig = Rig::create(verbs::devices().value()[0].open().value());
  if (!rig) return std::cout << rig.error() << std::endl, 1;
  const Status made = verbs::initialize_fork_safety();
  if (made) return std::cout << "ok" << std::endl, 0;
  const bool refused =
      made.error().code() == Code::kProvider && made.error().system_errno() == EINVAL;
  std::cout << (refused ? "EINVAL" : made.error().message()) << std::endl;
  return 0;
}
const RegisterRole fork_late_role{"fork-late", &fork_late};

TEST_F(VerbsProcess, ChildOfForkHasThePagesOfRegistrationsWhereTheKernelCopiesThem) {
  if (::ibv_is_fork_initialized() != IBV_FORK_UNNEEDED)
    GTEST_SKIP() << "on this kernel a child has no registered pages";
  auto forking = RxeChild::role("fork-child", {});
  EXPECT_EQ(forking.line(), "status 0");
  EXPECT_EQ(forking.wait(), 0);
}
// --role fork-child: registers memory of the heap and forks; says how the child has ended, which
// reads that memory and uses the heap around it.
int fork_child(const std::vector<std::string>&) {
  if (const Status made = verbs::initialize_fork_safety(); !made)
    return std::cout << made.error() << std::endl, 1;
  auto rig = Rig::create(verbs::devices().value()[0].open().value()).value();
  rig.fill(0, rig.bytes.size(), 7);
  const std::vector<std::byte> before = rig.bytes;
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<std::byte> more(std::size_t{1} << 20U, std::byte{1});
    ::_exit(rig.bytes == before && more.back() == std::byte{1} ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return std::cout << "signal " << WTERMSIG(status) << std::endl, 1;
  std::cout << "status " << WEXITSTATUS(status) << std::endl;
  return 0;
}
const RegisterRole fork_child_role{"fork-child", &fork_child};

// rping is rdma-core's example program: not ours, and built on rdma_create_qp.
TEST_F(VerbsProcess, OurClientPingsRpingsServer) {
  constexpr std::uint16_t kPort = 7175;
  RxeChild server{{"rping", "-s", "-v", "-a", address().host(), "-p", std::to_string(kPort), "-C",
                   "10", "-S", "100"}};
  Result<Client> side = Error{Code::kInternal};
  Result<verbs::Connection> connection = Error{Code::kInternal};
  const auto give_up = soon();
  do {  // it does not say when it listens
    side = client(address(kPort));
    ASSERT_OK(side);
    ASSERT_OK(side->connector.queue_pair().post_receive(1, side->rig.memory->slice(4096, 16)));
    connection = side->connector.connect(soon());
    if (!connection) std::this_thread::sleep_for(std::chrono::milliseconds{100});
  } while (!connection && connection.error().code() == Code::kConnectionRefused &&
           std::chrono::steady_clock::now() < give_up);
  ASSERT_OK(connection);
  for (int round = 0; round < 10; ++round) {
    const std::string text = "remora-ping-" + std::to_string(round) + " 0123456789";
    ASSERT_TRUE(rping_round(*connection, side->rig, text, 100));
  }
  ASSERT_OK(connection->disconnect());
  const std::string told = server.rest();
  EXPECT_NE(told.find("server ping data: remora-ping-9 0123456789"), std::string::npos) << told;
  EXPECT_TRUE(server.wait().has_value());
}

TEST_F(VerbsProcess, RpingsClientPingsOurServer) {
  auto listener = listen();
  ASSERT_OK(listener);
  RxeChild client{{"rping", "-c", "-v", "-V", "-a", address().host(), "-p",
                   std::to_string(listener->local_address().port()), "-C", "5", "-S", "100"}};
  auto request = listener->wait_request(soon());
  ASSERT_OK(request);
  auto rig = Rig::create(request->device());
  ASSERT_OK(rig);
  ASSERT_OK(request->create_queue_pair(rig->builder()));
  ASSERT_OK(request->queue_pair().post_receive(1, rig->memory->slice(4096, 16)));
  auto connection = std::move(*request).accept(soon());
  ASSERT_OK(connection);
  for (int round = 0; round < 5; ++round) ASSERT_TRUE(rping_serve_round(*connection, *rig, 100));
  EXPECT_EQ(connection->wait_event(soon()).value().kind, Kind::kDisconnected);
  const std::string told = client.rest();  // it has compared what came back with what it sent
  EXPECT_NE(told.find("ping data: rdma-ping-4: "), std::string::npos) << told;
  EXPECT_EQ(client.wait(), 0);
}

}  // namespace
}  // namespace remora::test
