// Today's client and a server of protocol version 1, which has its own frozen messages.

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "fake_lane.h"
#include "remora_control_v1.pb.h"

namespace remora::detail {
namespace {

namespace v1 = control_v1;
using transport::ControlMessage;

/// Answers the requests of version 1, and no others.
class ServerOfVersionOne final : public transport::ClientEndpoint {
 public:
  explicit ServerOfVersionOne(std::vector<v1::Request>* asked)
      : asked_{asked}, event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  Status send(ControlMessage message, Deadline /*deadline*/) noexcept override {
    v1::Envelope came;
    if (!came.ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size())))
      return Error{Code::kProtocol, "version 1"};
    asked_->push_back(came.request());
    v1::Envelope envelope;
    envelope.set_magic(came.magic());
    envelope.set_id(came.id());
    answer(came.request(), *envelope.mutable_reply());
    std::vector<std::byte> bytes(envelope.ByteSizeLong());
    envelope.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
    const std::lock_guard lock{mutex_};
    answers_.push_back({.bytes = std::move(bytes), .descriptors = {}});
    ::eventfd_write(event_.get(), 1);
    return {};
  }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    const std::lock_guard lock{mutex_};
    eventfd_t count = 0;
    if (answers_.empty()) {
      ::eventfd_read(event_.get(), &count);
      return std::optional<ControlMessage>{};
    }
    std::optional<ControlMessage> first{std::move(answers_.front())};
    answers_.erase(answers_.begin());
    return first;
  }
  Result<std::unique_ptr<transport::Lane>> open_lane(const transport::LaneTicket& ticket,
                                                     std::uint32_t, Deadline) noexcept override {
    EXPECT_EQ(ticket.session_id, 11U);
    EXPECT_EQ(ticket.secret, 12U);
    return std::unique_ptr<transport::Lane>{std::make_unique<transport::FakeLane>()};
  }
  [[nodiscard]] std::shared_ptr<transport::MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Result<transport::AttachedGrant> attach(std::vector<transport::WireExtent> extents,
                                          std::vector<UniqueFd>, Rights) noexcept override {
    return transport::AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void shutdown() noexcept override {}

 private:
  static void describe(v1::Region& region) {
    region.set_name("r");
    region.set_size_bytes(4096);
    region.set_block_bytes(64);
    region.set_rights(7);
    region.set_atomic_domain("old0");
    region.set_epoch(1);
    region.set_extent_count(1);
  }
  static void answer(const v1::Request& request, v1::Reply& reply) {
    switch (request.body_case()) {
      case v1::Request::kHello: {
        v1::Welcome& welcome = *reply.mutable_hello();
        welcome.set_version(1);
        welcome.set_server_name("old");
        welcome.set_memory_id(10);
        welcome.set_session_id(11);
        welcome.set_lane_secret(12);
        welcome.set_device("old0");
        return;
      }
      case v1::Request::kCreate: return describe(*reply.mutable_create()->mutable_region());
      case v1::Request::kStat: return describe(*reply.mutable_stat()->mutable_region());
      case v1::Request::kList: return describe(*reply.mutable_list()->add_regions());
      case v1::Request::kOpen: {
        v1::OpenReply& opened = *reply.mutable_open();
        describe(*opened.mutable_region());
        opened.set_grant_id(1);
        v1::Extent& extent = *opened.add_extents();
        extent.set_length_bytes(4096);
        extent.set_address(0x10000);
        extent.set_key(1);
        return;
      }
      case v1::Request::kClose: reply.mutable_close(); return;
      case v1::Request::kRemove: reply.mutable_remove(); return;
      default:
        ADD_FAILURE() << "version 1 does not know request " << request.body_case();
        reply.mutable_failure()->set_code(static_cast<std::uint32_t>(Code::kProtocol));
    }
  }

  std::vector<v1::Request>* asked_;
  std::string device_ = "fake0";
  UniqueFd event_;
  std::mutex mutex_;
  std::vector<ControlMessage> answers_;
};

Result<std::shared_ptr<SessionCore>> connect(std::vector<v1::Request>& asked,
                                             EngineOptions options = {}) {
  using Connected = Result<std::unique_ptr<transport::ClientEndpoint>>;
  ServerConnector connector{.server = "old:1", .connect = [&asked](Deadline /*deadline*/) {
                              return Connected{std::make_unique<ServerOfVersionOne>(&asked)};
                            }};
  return SessionCore::start(EngineCore::create(std::move(options)).value(), std::move(connector),
                            deadline_after(std::chrono::seconds{10}));
}

TEST(ServersOfVersionOne, GetAHelloThatTheyUnderstand) {
  std::vector<v1::Request> asked;
  const auto core = connect(asked);
  ASSERT_TRUE(core) << core.error();
  ASSERT_FALSE(asked.empty());
  const v1::Hello& hello = asked[0].hello();
  EXPECT_EQ(hello.version_oldest(), 1U);
  EXPECT_GE(hello.version_newest(), 1U);
  EXPECT_EQ(hello.auth(), v1::AUTH_NONE);
  EXPECT_EQ(hello.client_name(), "remora");
  EXPECT_EQ((*core)->version(), 1U);
  EXPECT_EQ((*core)->server().name, "old");
}

TEST(ServersOfVersionOne, GetOnlyRequestsThatTheyKnow) {
  std::vector<v1::Request> asked;
  {
    const auto core = connect(asked);
    ASSERT_TRUE(core) << core.error();
    const Session session{*core};
    EXPECT_TRUE(session.create_region({.name = "r", .size_bytes = 4096, .block_bytes = 64}).ok());
    EXPECT_EQ(session.regions()->size(), 1U);
    EXPECT_EQ(session.stat("r")->atomic_domain, "old0");
    auto region = RegionGrant::open(*core, "r", Rights::kAll, "test",
                                    deadline_after(std::chrono::seconds{10}));
    ASSERT_TRUE(region) << region.error();
    EXPECT_EQ((*region)->info().size_bytes, 4096U);
    region->reset();
    EXPECT_TRUE(session.remove_region("r").ok());
  }
  std::vector<v1::Request::BodyCase> kinds;
  kinds.reserve(asked.size());
  for (const v1::Request& request : asked) kinds.push_back(request.body_case());
  const std::vector<v1::Request::BodyCase> expected{
      v1::Request::kHello, v1::Request::kCreate, v1::Request::kList,  v1::Request::kStat,
      v1::Request::kOpen,  v1::Request::kClose,  v1::Request::kRemove};
  EXPECT_EQ(kinds, expected);
}

TEST(ServersOfVersionOne, GetNoRequestThatTheyWouldMisread) {
  std::vector<v1::Request> asked;
  const auto core = connect(asked);
  ASSERT_TRUE(core) << core.error();
  const Session session{*core};
  EXPECT_EQ(session.usage().error().code(), Code::kUnsupported);
  EXPECT_EQ(session.sessions().error().code(), Code::kUnsupported);
  EXPECT_EQ(session.end_session(1).error().code(), Code::kUnsupported);
  EXPECT_EQ(session.drain().error().code(), Code::kUnsupported);
  RegionSpec spec{.name = "r", .size_bytes = 4096};
  spec.access = {{.client = "*", .rights = Rights::kRead}};
  EXPECT_EQ(session.create_region(spec).error().code(), Code::kUnsupported);
  EXPECT_EQ(asked.size(), 1U);
}

TEST(ServersOfVersionOne, AreNotTrustedByAClientWithAKey) {
  std::vector<v1::Request> asked;
  EngineOptions options;
  options.key = config::SecretKey::generate().value();
  const auto core = connect(asked, options);
  ASSERT_FALSE(core);
  EXPECT_EQ(core.error().code(), Code::kConnectionRefused);
  EXPECT_EQ(core.error().reason(), Reason::kAuthentication);
}

}  // namespace
}  // namespace remora::detail
