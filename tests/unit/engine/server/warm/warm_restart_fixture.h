#pragma once

/// A server that follows another one with the same memory, and clients of both.

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <remora/remora.h>

#include "support/memory_store.h"
#include "support/runtime_dir.h"

namespace remora::detail {

/// What a client is told of its sessions.
struct Told {
  std::atomic<int> resumed{0};
  std::atomic<int> stale{0};
  std::atomic<int> lost{0};
  std::atomic<Reason> why{Reason::kNone};
};

class WarmRestartTest : public testing::TestWithParam<const char*> {
 protected:
  WarmRestartTest() {
    config_.listen.port = 0;
    config_.transports.rdma = config::Availability::kOff;
    config_.transports.tcp = config::Availability::kRequired;
    config_.transports.shm = config::Availability::kRequired;
    config_.pool = {.size_bytes = 1U << 20U,
                    .piece_bytes = 256U << 10U,
                    .huge_pages = config::HugePages::kNever,
                    .warm_restart = true};
    config_.auth = config::Auth::kNone;
    config_.limits.drain_timeout = std::chrono::seconds{0};
    config_.limits.session_keep = std::chrono::seconds{60};  // a machine may be busy
  }

  [[nodiscard]] static bool shm() { return std::string_view{GetParam()} == "shm"; }
  void start() {
    auto server = Server::start(config_, nullptr, nullptr, {}, {}, store_);
    ASSERT_TRUE(server) << server.error().message();
    server_.emplace(std::move(*server));
    config_.listen.port = server_->port();
  }
  void hand_over() {
    server_->hand_over();
    server_.reset();
  }
  void restart() {
    hand_over();
    start();
  }
  /// A server that the clients so far do not find.
  void restart_elsewhere() {
    hand_over();
    port_ = std::exchange(config_.listen.port, std::uint16_t{0});
    start();
  }
  void restart_where_clients_are() {
    hand_over();
    config_.listen.port = port_;
    start();
  }
  void create(const std::string& name, Lifetime lifetime = Lifetime::kPersistent) {
    const auto made = server_->create_region({.name = name,
                                              .size_bytes = kRegionBytes,
                                              .atomic_domain = "cpu",
                                              .shm = shm(),
                                              .lifetime = lifetime});
    ASSERT_TRUE(made) << made.error().message();
  }
  [[nodiscard]] std::string uri(const std::string& name) const {
    return "remora://127.0.0.1:" + std::to_string(config_.listen.port) + "/" + name +
           "?transport=" + GetParam();
  }
  /// `told` outlives the engine.
  static Engine engine(Told& told) {
    EngineOptions options;
    options.handlers.on_resumed = [&told](const SessionEvent&) { ++told.resumed; };
    options.handlers.on_stale = [&told](const SessionEvent&) { ++told.stale; };
    options.handlers.on_lost = [&told](const SessionEvent& event) {
      told.why = event.reason;
      ++told.lost;
    };
    return Engine::open(options).value();
  }
  [[nodiscard]] std::uint64_t memory_id() const {
    const auto regions = server_->regions();
    return regions.empty() ? 0 : regions.front().memory_id;
  }
  [[nodiscard]] bool status_has(std::string_view text) const {
    return server_->status_json().find(text) != std::string::npos;
  }

  static std::array<std::byte, 8> word(std::uint64_t value) {
    std::array<std::byte, 8> bytes{};
    std::memcpy(bytes.data(), &value, bytes.size());
    return bytes;
  }
  static Status write_word(const Region& region, ByteOffset at, std::uint64_t value) {
    const std::array<std::byte, 8> bytes = word(value);
    return region.write(at, bytes);
  }
  static std::uint64_t read_word(const Region& region, std::uint64_t at) {
    std::array<std::byte, 8> bytes{};
    std::uint64_t value = 0;
    const Status read = region.read(ByteOffset{at}, bytes);
    EXPECT_TRUE(read) << read.error().message();
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  static constexpr std::uint64_t kRegionBytes = 64U << 10U;

  test::RuntimeDir folder_;
  config::ServerConfig config_;
  std::shared_ptr<test::MemoryStore> store_ = std::make_shared<test::MemoryStore>();
  std::optional<Server> server_;
  std::uint16_t port_ = 0;
};

}  // namespace remora::detail
