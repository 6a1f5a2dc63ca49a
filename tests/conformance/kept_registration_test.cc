/// A device that fails to deregister memory: the session that had the key cannot use it all the
/// same, and other sessions continue. This program's `ibv_dereg_mr` fails where a test says so.

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>

#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/server.h"
#include "support/transport.h"

namespace {
/// Deregistration fails for memory of this length. Tests write it, any thread reads it.
std::atomic<std::size_t> kept_length_bytes{0};
std::atomic<int> kept_count{0};
}  // namespace

// Replaces that of libibverbs in all of this program.
extern "C" int ibv_dereg_mr(ibv_mr* mr) {
  if (mr->length == kept_length_bytes.load()) {
    ++kept_count;
    return EBUSY;
  }
  static const auto real = reinterpret_cast<int (*)(ibv_mr*)>(::dlsym(RTLD_NEXT, "ibv_dereg_mr"));
  return real(mr);
}

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;

constexpr std::uint64_t kKeptRegionBytes = 68_KiB;  // no other registration here is as long

class KeptRegistrationTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    config::ServerConfig config = server_config(GetParam(), {.lease = std::chrono::minutes{10}});
    config.transports.rdma_protection = config::RdmaProtection::kRegistrations;
    server_ = Server::start(config).value();
    address_ = {listen_address(GetParam()), server_->port()};
    make("target");
  }
  void TearDown() override {
    if (server_) server_->stop();
    kept_length_bytes = 0;
    kept_count = 0;
  }
  void make(const std::string& name) {
    RegionSpec spec;
    spec.name = name;
    spec.size_bytes = kKeptRegionBytes;
    server_->create_region(spec).value();
  }
  /// Whether a write with the key completes. One that gets no completion has failed too: rxe sends
  /// again for ever to a queue pair that is destroyed.
  static bool writes(RawSession& session, std::uint64_t address, std::uint32_t key) {
    try {
      return session.run(Opcode::kWrite, address, key, 64) == CompletionStatus::kSuccess;
    } catch (const Exception&) {
      return false;
    }
  }
  [[nodiscard]] double gauge(const char* name) const {
    const auto sum = server_->registry().sum(name, {});
    return sum ? *sum : -1.0;
  }
  [[nodiscard]] double ended_so() const {
    const auto sum =
        server_->registry().sum("remora_server_sessions_ended_total", {{"reason", "key_kept"}});
    return sum ? *sum : -1.0;
  }
  [[nodiscard]] bool soon(const char* name, double value) const {
    for (Patience patience{std::chrono::seconds{20}}; gauge(name) != value && !patience.over();)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    return gauge(name) == value;
  }
  std::optional<Server> server_;
  ServerAddress address_;
};

TEST_P(KeptRegistrationTest, ClosedGrantEndsTheSessionAndItsKeyIsOfNoUse) {
  const double registrations = gauge("remora_server_registrations");
  {
    // A ticket in the Hello says that the client resumes its session when it is lost.
    const transport::LaneTicket none{};
    RawSession session{address_, GetParam(), &none};
    const RawSession::Grant grant = session.open("target", Rights::kAll);
    const auto [start, length, address, key] = grant.extents[0];
    ASSERT_EQ(session.run(Opcode::kWrite, address, key, 64), CompletionStatus::kSuccess);
    const Engine neighbour = Engine::open({}).value();
    const Region theirs =
        neighbour
            .open_region("remora://" + address_.host + ":" + std::to_string(address_.port) +
                             "/target?transport=rdma",
                         Rights::kAll)
            .value();
    const std::vector<std::byte> bytes = noise(kKeptRegionBytes, 1);
    kept_length_bytes = kKeptRegionBytes;
    EXPECT_THROW(session.close(grant), Exception) << "the session has ended instead";
    kept_length_bytes = 0;
    EXPECT_EQ(kept_count, 1);
    ASSERT_TRUE(ok(theirs.write(ByteOffset{0}, bytes)));
    EXPECT_FALSE(writes(session, address, key));
    EXPECT_TRUE(session.ended());
    // The client cannot resume the session either, whose protection domain has the registration.
    const RawSession again{address_, GetParam(), &session.ticket()};
    EXPECT_NE(again.ticket().session_id, session.ticket().session_id);
    std::vector<std::byte> seen(kKeptRegionBytes);
    ASSERT_TRUE(ok(theirs.read(ByteOffset{0}, seen)));
    EXPECT_TRUE(same_bytes(seen, bytes));
  }
  EXPECT_TRUE(soon("remora_server_registrations", registrations + 1)) << "it is still there";
  EXPECT_EQ(ended_so(), 1.0);
}

/// A region that is removed at once, while its last user goes on.
TEST_P(KeptRegistrationTest, RegionThatIsRemovedIsNotReachedByItsLastUser) {
  RawSession session{address_, GetParam()};
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  const auto [start, length, address, key] = grant.extents[0];
  ASSERT_EQ(session.run(Opcode::kWrite, address, key, 64), CompletionStatus::kSuccess);
  kept_length_bytes = kKeptRegionBytes;
  EXPECT_TRUE(ok(server_->remove_region("target", Removal::kNow)));
  kept_length_bytes = 0;
  EXPECT_EQ(kept_count, 1);
  make("target");  // gets the memory of the removed region
  EXPECT_FALSE(writes(session, address, key));
  EXPECT_TRUE(session.ended());
  std::vector<std::byte> seen(kKeptRegionBytes);
  ASSERT_TRUE(ok(server_->view("target").value().read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, std::vector<std::byte>(kKeptRegionBytes)));
}

INSTANTIATE_TEST_SUITE_P(Conformance, KeptRegistrationTest, testing::Values(TransportKind::kRdma),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

}  // namespace
}  // namespace remora::test
