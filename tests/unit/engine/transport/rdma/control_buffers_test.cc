/// The control channel of a device that reports what cannot be.

#include "transport/rdma/control_buffers.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <remora/engine/log.h>

#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::transport::rdma {
namespace {

class ControlBuffersTest : public test::RdmaEndpointFixture {
 protected:
  void SetUp() override {
    play("mlx5");
    reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
    endpoint_ = connect();
    set_log_sink([this](const LogLine& line) {
      const std::lock_guard lock{mutex_};
      events_.emplace_back(line.event);
    });
  }
  void TearDown() override {
    set_log_sink({});
    endpoint_.reset();
    RdmaEndpointFixture::TearDown();
  }
  /// The device reports a request that has succeeded.
  void report(std::uint64_t id, std::uint32_t length = 1) {
    ibv_wc completion{};
    completion.wr_id = id;
    completion.status = IBV_WC_SUCCESS;
    completion.byte_len = length;
    fake_.completions.push_back(completion);
  }
  Status send() { return endpoint_->send({.bytes = std::vector<std::byte>(8), .descriptors = {}}); }
  [[nodiscard]] std::uint64_t last_sent() const { return fake_.sent.back().back().wr_id; }
  /// The queue pair is in its error state, and the log says why.
  void expect_ended() {
    ASSERT_FALSE(fake_.modified.empty());
    EXPECT_EQ(fake_.modified.back().first.qp_state, IBV_QPS_ERR);
    EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
    const std::lock_guard lock{mutex_};
    EXPECT_EQ(events_, std::vector<std::string>{"device.wrong_completion"});
  }
  void expect_receive_refused(std::uint64_t id, std::uint32_t length) {
    report(id, length);
    const auto received = endpoint_->receive();
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.error().code(), Code::kProvider) << received.error();
    EXPECT_EQ(received.error().subject(),
              "fake0 completed request " + std::to_string(id) + ", which is not posted");
    expect_ended();
  }
  void expect_send_refused() {
    EXPECT_CODE(send(), kProvider);
    expect_ended();
  }

  std::unique_ptr<Endpoint> endpoint_;
  std::mutex mutex_;
  std::vector<std::string> events_;
};

TEST_F(ControlBuffersTest, MessagesArriveInEachOfTheReceives) {
  for (std::uint64_t id = 0; id < kControlReceives; ++id) {
    report(id, kMaxControlMessageBytes);
    const auto received = endpoint_->receive();
    ASSERT_OK(received);
    ASSERT_TRUE(received->has_value());
    EXPECT_EQ((*received)->bytes.size(), kMaxControlMessageBytes);
    EXPECT_EQ(fake_.received_ids.back(), id) << "it is posted again";
  }
}

TEST_F(ControlBuffersTest, ReceiveWithTheIdOfASendEndsTheConnection) {
  expect_receive_refused(kControlReceives, 1);
}

TEST_F(ControlBuffersTest, ReceiveWithAnIdOfNoBufferEndsTheConnection) {
  expect_receive_refused(UINT64_MAX, 1);
}

TEST_F(ControlBuffersTest, ReceiveOfMoreBytesThanItsBufferHasEndsTheConnection) {
  expect_receive_refused(0, kMaxControlMessageBytes + 1);
}

TEST_F(ControlBuffersTest, BufferOfASendThatHasCompletedIsUsedAgain) {
  ASSERT_OK(send());
  const std::uint64_t first = last_sent();
  ASSERT_OK(send());
  EXPECT_EQ(last_sent(), first);
}

TEST_F(ControlBuffersTest, SendWithTheIdOfAReceiveEndsTheConnection) {
  report(0);
  expect_send_refused();
}

TEST_F(ControlBuffersTest, SendWithAnIdOfNoBufferEndsTheConnection) {
  report(kControlReceives + kControlSends);
  expect_send_refused();
}

TEST_F(ControlBuffersTest, SendThatCompletesASecondTimeEndsTheConnection) {
  ASSERT_OK(send());
  report(last_sent());
  expect_send_refused();
}

}  // namespace
}  // namespace remora::transport::rdma
