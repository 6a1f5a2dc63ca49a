/// Which refusals the driver believes: some devices report a failed request as the oldest one that
/// is not known to be done.

#include <gtest/gtest.h>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/rdma/lane.h"
#include "unit/engine/client/datapath/queued_lane_driver_fixture.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

class QueuedLaneRefusalTest : public QueuedLaneDriverTest {
 protected:
  /// Places that are no neighbours, so that each operation is a request of its own.
  OperationRecord& scattered(Opcode opcode, std::size_t place) {
    if (is_atomic(opcode)) return make(opcode, 256 * place, {});
    return registered(make(opcode, 256 * place, std::span{buffer_}.subspan(256 * place, 64)));
  }
  /// One chain, of which the last request is signaled.
  std::vector<OperationRecord*> submit_chain(std::span<const Opcode> opcodes) {
    std::vector<OperationRecord*> chain;
    for (const Opcode opcode : opcodes) {
      chain.push_back(&scattered(opcode, chain.size()));
      if (chain.size() > 1) chain[chain.size() - 2]->next = chain.back();
    }
    submit(*chain.front());
    return chain;
  }
};

constexpr std::array kThreeWrites{Opcode::kWrite, Opcode::kWrite, Opcode::kWrite};

TEST_F(QueuedLaneRefusalTest, UnsignaledWriteMayHaveBeenCarriedOut) {
  const auto chain = submit_chain(kThreeWrites);
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(3);
  for (const OperationRecord* each : chain) EXPECT_EQ(each->outcome.code, Code::kIndeterminate);
  EXPECT_EQ(chain[0]->outcome.status, CompletionStatus::kRemoteAccessError) << "as reported";
}

TEST_F(QueuedLaneRefusalTest, UnsignaledAtomicMayHaveBeenCarriedOut) {
  for (const Opcode opcode : {Opcode::kCompareSwap, Opcode::kFetchAdd}) {
    start(std::make_unique<FakeLane>());
    const auto chain = submit_chain(std::array{opcode, Opcode::kWrite});
    lane_->complete(0, CompletionStatus::kRemoteAccessError);
    wait_all(2);
    EXPECT_EQ(chain[0]->outcome.code, Code::kIndeterminate);
    (void)taken();
  }
}

/// The client's own memory may be wrong of any request, too.
TEST_F(QueuedLaneRefusalTest, LocalFaultOfAnUnsignaledWriteIsAsUncertain) {
  const auto chain = submit_chain(kThreeWrites);
  lane_->complete(0, CompletionStatus::kLocalProtectionError);
  wait_all(3);
  EXPECT_EQ(chain[0]->outcome.code, Code::kIndeterminate);
}

TEST_F(QueuedLaneRefusalTest, SignaledRequestWasRefused) {
  const auto alone = submit_chain(std::array{Opcode::kWrite});
  const auto behind = submit_chain(std::array{Opcode::kCompareSwap});
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(2);
  EXPECT_EQ(alone[0]->outcome.code, Code::kAccessRefused);
  EXPECT_EQ(behind[0]->outcome.code, Code::kIndeterminate);
}

TEST_F(QueuedLaneRefusalTest, LastOfAChainWhoseOthersAreDoneWasRefused) {
  const auto chain = submit_chain(kThreeWrites);
  lane_->complete(2, CompletionStatus::kRemoteAccessError);
  wait_all(3);
  EXPECT_TRUE(chain[0]->outcome.ok);
  EXPECT_TRUE(chain[1]->outcome.ok);
  EXPECT_EQ(chain[2]->outcome.code, Code::kAccessRefused);
}

TEST_F(QueuedLaneRefusalTest, RequestThatIsNotTheOldestIsNamedByTheDevice) {
  const auto chain = submit_chain(kThreeWrites);
  lane_->complete(1, CompletionStatus::kRemoteAccessError);
  wait_all(3);
  EXPECT_TRUE(chain[0]->outcome.ok);
  EXPECT_EQ(chain[1]->outcome.code, Code::kAccessRefused);
  EXPECT_EQ(chain[2]->outcome.code, Code::kIndeterminate);
}

TEST_F(QueuedLaneRefusalTest, ReadIsRefusedEitherWay) {
  const auto chain = submit_chain(std::array{Opcode::kRead, Opcode::kWrite});
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(2);
  EXPECT_EQ(chain[0]->outcome.code, Code::kAccessRefused) << "it has changed nothing";
}

/// On the lane of the rdma transport, over a device with that habit and over one without.
TEST_F(QueuedLaneRefusalTest, WriteThatWasCarriedOutIsNeverReportedAsRefused) {
  for (const auto& [kind, first] :
       {std::pair{"bnxt_re", Code::kIndeterminate}, std::pair{"mlx5", Code::kInternal}}) {
    test::FakeVerbs fake;
    fake.play(*test::find_device_profile(kind));
    fake.refused_id = 1;
    const test::FakeRig rig{verbs::devices(fake.table).value().begin()->open().value()};
    auto pair = rig.connected();
    auto lane = transport::rdma::make_lane({.pair = &pair, .to_error = [] {}, .destroy = [] {}},
                                           rig.queue, 1U << 20U, 64)
                    .value();
    driver_ = std::make_unique<QueuedLaneDriver>(
        std::move(lane),
        QueuedLaneDriver::Options{.spin = std::chrono::nanoseconds{0},
                                  .domain_index = 0,
                                  .needs_keys = true,
                                  .bounce = bounce_},
        ClientMetrics::create(registry_, TransportKind::kRdma).value(), [] {});
    const auto chain = submit_chain(kThreeWrites);
    wait_all(3);
    if (first == Code::kInternal)
      EXPECT_TRUE(chain[0]->outcome.ok) << kind;
    else
      EXPECT_EQ(chain[0]->outcome.code, first) << kind;
    EXPECT_EQ(chain[1]->outcome.code,
              first == Code::kInternal ? Code::kAccessRefused : Code::kIndeterminate)
        << kind;
    EXPECT_EQ(chain[2]->outcome.code, Code::kIndeterminate) << kind;
    (void)taken();
    driver_.reset();
  }
}

}  // namespace
}  // namespace remora::detail
