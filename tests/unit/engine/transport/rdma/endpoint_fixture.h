#pragma once

/// Server's endpoints over a fake device, and grants of memory that the test owns.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/verbs/listener.h>

#include "transport/rdma/server_endpoint.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::test {

class RdmaEndpointFixture : public FakeTest {
 protected:
  /// The endpoints, which are locals of the test, are gone by now.
  void TearDown() override {
    reaper_.reset();
    FakeTest::TearDown();
  }
  using Endpoint = transport::rdma::RdmaServerEndpoint;
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  static verbs::Address peer() { return verbs::Address::parse("10.0.0.1", 7471).value(); }
  void play(std::string_view name) { fake_.play(*find_device_profile(name)); }
  std::unique_ptr<Endpoint> connect() {
    auto connector = verbs::Connector::resolve(peer(), later(), {}, fake_.table).value();
    auto domain = connector.device().allocate_domain().value();
    auto buffers = transport::rdma::ControlBuffers::create(domain).value();
    EXPECT_TRUE(connector.create_queue_pair(buffers.builder()));
    return std::make_unique<Endpoint>(lanes_, reaper_, domains_, registrations_->of("fake0", 0),
                                      nullptr, std::move(buffers),
                                      connector.connect(later()).value(), FdSet::create().value());
  }
  /// Of 32 bytes that differ.
  static config::SecretKey key(unsigned first_byte) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < config::SecretKey::kBytes; ++i) {
      const unsigned byte = (first_byte + i) % 256;
      text.push_back(kDigits[byte / 16]);
      text.push_back(kDigits[byte % 16]);
    }
    return config::SecretKey::parse(text).value();
  }
  /// A session of the client that proves such a key.
  std::unique_ptr<Endpoint> join(std::string_view name, unsigned first_byte) {
    auto endpoint = connect();
    endpoint->join_client(name, key(first_byte));
    return endpoint;
  }
  Result<transport::Grant> grant(Endpoint& endpoint, std::uint64_t offset = 0,
                                 std::uint64_t length = 4096, Rights rights = Rights::kAll,
                                 std::uint64_t epoch = 0) {
    const transport::MemoryStretch stretch{memory_.data() + offset, length};
    return endpoint.grant({.extents = {&stretch, 1}, .rights = rights, .epoch = epoch});
  }
  [[nodiscard]] int registered() const { return fake_.uses("reg_mr") + fake_.uses("reg_mr_iova"); }
  verbs::ConnectionListener listen() {
    return verbs::ConnectionListener::bind(peer(), 8, fake_.table).value();
  }
  /// The request of a client that comes for a lane.
  verbs::ConnectionRequest next_request(verbs::ConnectionListener& listener) {
    fake_.knock("");
    return listener.next_request().value().value();
  }
  /// Whether a request of `before` would be carried out by `now`.
  static bool reaches(const transport::WireExtent& before, const transport::WireExtent& now) {
    return before.remote_key == now.remote_key &&
           before.remote_address < now.remote_address + now.length_bytes &&
           now.remote_address < before.remote_address + before.length_bytes;
  }

  std::shared_ptr<transport::rdma::RegistrationBudgets> registrations_ =
      std::make_shared<transport::rdma::RegistrationBudgets>(1000);
  std::shared_ptr<transport::rdma::GrantDomains> domains_ =
      std::make_shared<transport::rdma::GrantDomains>(registrations_, nullptr);
  std::vector<std::byte> memory_ = std::vector<std::byte>(16'384);
  std::shared_ptr<transport::rdma::LaneRegistry> lanes_ =
      std::make_shared<transport::rdma::LaneRegistry>();
  std::shared_ptr<transport::Reaper> reaper_ = std::make_shared<transport::Reaper>();
};

}  // namespace remora::test
