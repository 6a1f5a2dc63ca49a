// An application whose own protocol is named as the library's could be, linked statically with it.

#include <array>
#include <cstddef>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <string>

#include <remora/remora.h>

#include "control.pb.h"
#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

storage::control::Envelope message() {
  storage::control::Envelope envelope;
  envelope.set_id("first");
  envelope.mutable_request()->mutable_hello()->set_greeting("good morning");
  envelope.mutable_request()->mutable_hello()->add_weights(1.5);
  return envelope;
}

TEST(OwnProtocolTest, OfAnApplicationStaysItsOwn) {
  const RuntimeDir runtime_dir;
  const std::string before = message().SerializeAsString();
  for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
    auto config = server_config(transport);
    config.regions.push_back(
        {.name = "demo", .size_bytes = 65536, .shm = transport == TransportKind::kShm});
    const auto server = Server::start(config).value();
    const auto engine = Engine::open({}).value();
    const auto region = engine
                            .open_region("remora://127.0.0.1:" + std::to_string(server.port()) +
                                             "/demo?transport=" + std::string{to_string(transport)},
                                         Rights::kAll)
                            .value();
    const std::array<std::byte, 8> out{std::byte{7}};
    std::array<std::byte, 8> in{};
    region.write(ByteOffset{8}, out).value();
    region.read(ByteOffset{8}, in).value();
    EXPECT_EQ(in, out);

    storage::control::Envelope again;
    ASSERT_TRUE(again.ParseFromString(before));
    EXPECT_EQ(again.SerializeAsString(), before);
    EXPECT_EQ(again.request().hello().greeting(), "good morning");
  }
}

TEST(OwnProtocolTest, IsWhatTheProcessKnowsByThatFileName) {
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  const auto* const file = pool->FindFileByName("control.proto");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->package(), "storage.control");
  EXPECT_EQ(pool->FindMessageTypeByName("remora.control.Envelope"), nullptr);
}

}  // namespace
}  // namespace remora::test
