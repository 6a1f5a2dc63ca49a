// Unregistered bytes with and without an immediate, in pieces, on each transport.
#include <arpa/inet.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::LocalSlice;
using verbs::RemoteSlice;

class BatchInline : public FakeTest {
 protected:
  void SetUp() override { rig_.emplace(open()); }
  void TearDown() override {
    rig_.reset();
    FakeTest::TearDown();
  }
  template <verbs::Transport T>
  [[nodiscard]] verbs::QueuePair<T> pair() const {
    return verbs::QueuePairBuilder<T>{rig_->domain, rig_->queue, rig_->queue}
        .send_sge(2)
        .inline_bytes(32)
        .create()
        .value();
  }
  // The request `index` of the last chain: inline, of the two pieces or of the first, unkeyed.
  void expect_inline(std::size_t index, ibv_wr_opcode opcode, bool both) const {
    const ibv_send_wr& wr = fake_.sent.back().at(index);
    EXPECT_EQ(wr.opcode, opcode);
    EXPECT_NE(wr.send_flags & IBV_SEND_INLINE, 0U);
    const auto& elements = fake_.sent_elements.at(index);
    ASSERT_EQ(elements.size(), both ? 2U : 1U);
    EXPECT_EQ(elements[0].addr, reinterpret_cast<std::uintptr_t>(first_.data()));
    EXPECT_EQ(elements[0].length, 5U);
    EXPECT_EQ(elements[0].lkey, 0U);
    if (both) {
      EXPECT_EQ(elements[1].addr, reinterpret_cast<std::uintptr_t>(second_.data()));
      EXPECT_EQ(elements[1].length, 7U);
    }
    if (opcode != IBV_WR_SEND) {
      EXPECT_EQ(ntohl(wr.imm_data), 40U + index);
    }
  }
  template <verbs::Transport T>
  void connected_pairs_take_them() {
    auto posts = pair<T>();
    auto batch = posts.start();
    const RemoteSlice remote{1 << 20, 12, 55};
    batch.send_inline_with_immediate(1, first_, 40);
    batch.send_inline_with_immediate(2, pieces_, 41).solicited();
    batch.write_inline_with_immediate(3, first_, remote, 42).unsignaled();
    batch.write_inline_with_immediate(4, pieces_, remote, 43);
    ASSERT_OK(batch.post());
    expect_inline(0, IBV_WR_SEND_WITH_IMM, false);
    expect_inline(1, IBV_WR_SEND_WITH_IMM, true);
    expect_inline(2, IBV_WR_RDMA_WRITE_WITH_IMM, false);
    expect_inline(3, IBV_WR_RDMA_WRITE_WITH_IMM, true);
    EXPECT_EQ(fake_.sent.back()[3].wr.rdma.remote_addr, 1U << 20);
    EXPECT_EQ(fake_.sent.back()[3].wr.rdma.rkey, 55U);
    batch.write_inline_with_immediate(5, pieces_, remote.slice(0, 11), 44);
    EXPECT_CODE(batch.post(), kOutOfRange);
    const std::array<std::byte, 33> long_bytes{};
    batch.write_inline_with_immediate(6, long_bytes, RemoteSlice{1 << 20, 64, 55}, 45);
    EXPECT_CODE(batch.post(), kLimitExceeded);
  }
  std::optional<FakeRig> rig_;
  std::array<std::byte, 5> first_{};
  std::array<std::byte, 7> second_{};
  std::array<std::span<const std::byte>, 2> pieces_{first_, second_};
};

TEST_F(BatchInline, ReliableConnectionCarriesImmediates) { connected_pairs_take_them<verbs::Rc>(); }
TEST_F(BatchInline, UnreliableConnectionCarriesImmediates) {
  connected_pairs_take_them<verbs::Uc>();
}

TEST_F(BatchInline, DatagramsCarryPiecesListsAndImmediates) {
  auto posts = pair<verbs::Ud>();
  verbs::DatagramEndpoint endpoint;
  endpoint.qp_number = 9;
  endpoint.qkey = 0x55;
  const auto peer = verbs::DatagramPeer::create(rig_->domain, endpoint, {}).value();
  const std::array<LocalSlice, 2> list{rig_->memory.slice(0, 8), rig_->memory.slice(64, 8)};
  auto batch = posts.start();
  batch.send_inline(1, pieces_, peer);
  batch.send_inline_with_immediate(2, first_, 41, peer);
  batch.send_inline_with_immediate(3, pieces_, 42, peer);
  batch.send_with_immediate(4, list, 43, peer);
  batch.send(5, list, peer);
  ASSERT_OK(batch.post());
  expect_inline(0, IBV_WR_SEND, true);
  expect_inline(1, IBV_WR_SEND_WITH_IMM, false);
  expect_inline(2, IBV_WR_SEND_WITH_IMM, true);
  for (const ibv_send_wr& wr : fake_.sent.back()) {
    EXPECT_EQ(wr.wr.ud.ah, peer.handle().raw());
    EXPECT_EQ(wr.wr.ud.remote_qpn, 9U);
    EXPECT_EQ(wr.wr.ud.remote_qkey, 0x55U);
  }
  EXPECT_EQ(ntohl(fake_.sent.back()[3].imm_data), 43U);
  EXPECT_EQ(fake_.sent.back()[3].num_sge, 2);
  EXPECT_EQ(fake_.sent_elements[3][1].lkey, rig_->memory.lkey());
  const std::array<std::span<const std::byte>, 3> many{first_, first_, first_};
  batch.send_inline(6, many, peer);
  EXPECT_CODE(batch.post(), kLimitExceeded);
}

template <typename T>
concept InlinesWithImmediate = requires(verbs::Batch<T> batch, std::span<const std::byte> bytes,
                                        RemoteSlice remote) {
  batch.send_inline_with_immediate(1, bytes, 2);
  batch.write_inline_with_immediate(1, bytes, remote, 2);
};
template <typename T>
concept InlinesToAPeer = requires(verbs::Batch<T> batch, std::span<const std::byte> bytes,
                                  const verbs::DatagramPeer& peer) {
  batch.send_inline_with_immediate(1, bytes, 2, peer);
};
static_assert(InlinesWithImmediate<verbs::Rc> && InlinesWithImmediate<verbs::Uc>);
static_assert(!InlinesWithImmediate<verbs::Ud> && InlinesToAPeer<verbs::Ud>);
static_assert(!InlinesToAPeer<verbs::Rc> && !InlinesToAPeer<verbs::Uc>);

}  // namespace
}  // namespace remora::test
