/// What is agreed on when a lane connects over rdma: reads and atomics in flight, one direction.

#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <regex>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <vector>

#include <remora/remora.h>

#include "base/log.h"
#include "raw_session.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/server.h"
#include "support/transport.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

/// The library's lines of level debug, while it lives: longer than any thread that logs.
class DebugLines {
 public:
  DebugLines() : level_{log::logger().level()} {
    log::logger().sinks().push_back(sink_);
    log::logger().set_level(spdlog::level::debug);
  }
  ~DebugLines() {
    log::logger().set_level(level_);
    log::logger().sinks().pop_back();
  }
  DebugLines(const DebugLines&) = delete;
  DebugLines& operator=(const DebugLines&) = delete;

  /// What the line of `whose` queue pair says: asks, agreed, answers, agreed.
  std::optional<std::array<std::uint32_t, 4>> depths(const std::string& whose) {
    const std::regex wanted{"rdma " + whose +
                            R"(: .*asks (\d+) \(agreed (\d+)\), answers (\d+) \(agreed (\d+)\))"};
    for (const std::string& line : sink_->last_formatted()) {
      std::smatch found;
      if (!std::regex_search(line, found, wanted)) continue;
      std::array<std::uint32_t, 4> numbers{};
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<std::uint32_t>(std::stoul(found[i + 1]));
      return numbers;
    }
    return std::nullopt;
  }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(256);
  spdlog::level::level_enum level_;
};

class RdmaDepthTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    server_ = Server::start(server_config(GetParam())).value();
    address_ = {listen_address(GetParam()), server_->port()};
  }
  void TearDown() override {
    if (server_) server_->stop();
  }

  DebugLines lines_;
  std::optional<Server> server_;
  ServerAddress address_;
};

TEST_P(RdmaDepthTest, QueuePairsOfALaneHaveWhatWasAgreedInOneDirection) {
  RawSession session{address_, GetParam()};
  const std::uint32_t agreed = session.lane().limits().initiator_depth;
  EXPECT_GT(agreed, 0U);
  const auto client = lines_.depths("client lane");
  ASSERT_TRUE(client);
  EXPECT_EQ(*client, (std::array<std::uint32_t, 4>{agreed, agreed, 0, 0}));
  const auto server = lines_.depths("server lane");
  ASSERT_TRUE(server);
  EXPECT_EQ(*server, (std::array<std::uint32_t, 4>{0, 0, agreed, agreed}));
}

// More than any device keeps in flight: the rest waits in the send queue.
TEST_P(RdmaDepthTest, QueueOf256ReadsAndAtomicsCompletes) {
  constexpr std::uint32_t kDepth = 256;
  constexpr std::uint64_t kPart = 1024;
  RegionSpec spec;
  spec.name = "deep";
  spec.size_bytes = kDepth * kPart + 4096;
  server_->create_region(spec).value();
  const std::vector<std::byte> model = noise(kDepth * kPart, 5);
  ASSERT_TRUE(ok(server_->view("deep").value().write(ByteOffset{4096}, model)));
  auto engine = Engine::open({}).value();
  const std::string uri = "remora://" + address_.host + ":" + std::to_string(address_.port) +
                          "/deep?transport=" + std::string{to_string(GetParam())};
  const Region region = engine.open_region(uri, Rights::kAll).value();
  SlotPool slots = engine.allocate_slots(kDepth, kPart).value();
  Queue queue = region.queue({.depth = kDepth}).value();
  std::uint64_t atomics = 0;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < kDepth; ++i) {
      if (i % 4 == 3) {
        ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1, i));
        ++atomics;
      } else {
        ASSERT_TRUE(queue.read(ByteOffset{4096 + i * kPart}, slots.take(), i));
      }
    }
    ASSERT_TRUE(ok(queue.submit()));
    while (queue.size() != 0)
      for (Completion& completion : queue.wait(1)) {
        ASSERT_TRUE(completion.ok()) << completion.error();
        const std::uint64_t i = completion.tag();
        if (i % 4 == 3) continue;
        EXPECT_TRUE(
            same_bytes(completion.slot().bytes(), std::span{model}.subspan(i * kPart, kPart)));
      }
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), atomics);
}

INSTANTIATE_TEST_SUITE_P(RdmaDepth, RdmaDepthTest, testing::Values(TransportKind::kRdma),
                         [](const auto& parameter) {
                           return std::string{to_string(parameter.param)};
                         });

}  // namespace
}  // namespace remora::test
