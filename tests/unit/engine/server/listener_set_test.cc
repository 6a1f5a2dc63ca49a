/// Where tcp listens beside a device that has the TCP port.

#include "server/listener_set.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace remora::detail {
namespace {

using Made = Result<std::unique_ptr<transport::Listener>>;

struct PretendListener final : transport::Listener {
  PretendListener(std::uint16_t at, bool of_iwarp) : port_{at}, iwarp_{of_iwarp} {}
  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] int event_fd() const noexcept override { return -1; }
  Result<std::vector<std::unique_ptr<transport::ServerEndpoint>>> accept() noexcept override {
    return std::vector<std::unique_ptr<transport::ServerEndpoint>>{};
  }
  [[nodiscard]] std::string description() const override { return "pretended"; }
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }
  [[nodiscard]] bool takes_tcp_port() const noexcept override { return iwarp_; }

 private:
  std::uint16_t port_;
  bool iwarp_;
};

TEST(ListenBesideIwarp, NextPortIsTakenWhereTheDeviceHasThePort) {
  std::vector<std::uint16_t> asked;
  const auto listen = [&](std::uint16_t port) -> Made {
    asked.push_back(port);
    if (port == 7471) return Error{Code::kAddressInUse, "bind"};
    return Made{std::make_unique<PretendListener>(port, false)};
  };
  const auto made = listen_beside_iwarp(7471, listen);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->port(), 7472);
  EXPECT_EQ(asked, (std::vector<std::uint16_t>{7471, 7472}));
}

TEST(ListenBesideIwarp, FirstErrorIsKept) {
  const auto taken = listen_beside_iwarp(7471, [](std::uint16_t port) {
    return Made{Error{Code::kAddressInUse, "bind"}.with_limit(port, 0)};
  });
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().asked(), 7471U);
  int asked = 0;
  const auto denied = listen_beside_iwarp(7471, [&](std::uint16_t) {
    ++asked;
    return Made{Error{Code::kPermissionDenied, "bind"}};
  });
  EXPECT_EQ(denied.error().code(), Code::kPermissionDenied);
  EXPECT_EQ(asked, 1) << "another port does not help";
}

TEST(ListenerSet, PortIsThatOfTheFirstListener) {
  ListenerSet set;
  set.add(std::make_unique<PretendListener>(7471, true));
  set.add(std::make_unique<PretendListener>(7472, false));
  EXPECT_EQ(set.port(), 7471);
  EXPECT_TRUE(set.takes_tcp_port());
}

}  // namespace
}  // namespace remora::detail
