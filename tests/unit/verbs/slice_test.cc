#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::LocalSlice;
using verbs::RemoteSlice;

TEST(LocalSlice, CutInsideIsExact) {
  const auto whole = LocalSlice::unchecked(1000, 100, 7);
  const auto cut = whole.slice(90, 10);
  ASSERT_TRUE(cut.valid());
  EXPECT_EQ(cut.address(), 1090U);
  EXPECT_EQ(cut.length_bytes(), 10U);
  EXPECT_EQ(cut.lkey(), 7U);
  EXPECT_TRUE(whole.slice(100, 0).valid());
}

TEST(LocalSlice, CutOutsideIsInvalidAndStaysSo) {
  const auto whole = LocalSlice::unchecked(1000, 100, 7);
  EXPECT_FALSE(whole.slice(90, 11).valid());
  EXPECT_FALSE(whole.slice(101, 0).valid());
  EXPECT_FALSE(whole.slice(1, UINT64_MAX).valid());
  EXPECT_FALSE(whole.slice(200, 1).slice(0, 0).valid());
}

TEST(RemoteSlice, CutOutsideIsInvalidAndStaysSo) {
  const RemoteSlice whole{1 << 20, 5ULL << 30, 9};
  EXPECT_TRUE(whole.slice(4ULL << 30, 1ULL << 30).valid());
  EXPECT_FALSE(whole.slice(4ULL << 30, (1ULL << 30) + 1).valid());
  EXPECT_FALSE(whole.slice(UINT64_MAX, 2).valid());
  EXPECT_FALSE(RemoteSlice::invalid().slice(0, 0).valid());
}

TEST(RemoteSlice, WireFormIsBigEndianAndComesBack) {
  const RemoteSlice slice{0x0102030405060708, 0x10, 0xa0b0c0d0};
  const auto wire = slice.to_wire();
  EXPECT_EQ(wire[0], std::byte{1});
  EXPECT_EQ(wire[7], std::byte{8});
  EXPECT_EQ(wire[15], std::byte{0x10});
  EXPECT_EQ(wire[16], std::byte{0xa0});
  EXPECT_EQ(RemoteSlice::from_wire(wire).value(), slice);
}

TEST(RemoteSlice, WrongWireFormIsAProtocolViolation) {
  const auto wire = RemoteSlice{UINT64_MAX - 4, 16, 1}.to_wire();  // wraps around
  EXPECT_CODE(RemoteSlice::from_wire(wire), kProtocol);
  EXPECT_CODE(RemoteSlice::from_wire(std::span{wire}.first(19)), kProtocol);
  EXPECT_CODE(RemoteSlice::from_wire(RemoteSlice::invalid().to_wire()), kProtocol);
}

TEST(Endpoint, WireFormComesBack) {
  verbs::Endpoint endpoint;
  endpoint.gid.bytes[15] = 3;
  endpoint.qp_number = 0x123456;
  endpoint.psn = 0xfffffe;
  endpoint.lid = 0x0203;
  endpoint.mtu = IBV_MTU_4096;
  EXPECT_EQ(verbs::Endpoint::from_wire(endpoint.to_wire()).value(), endpoint);
}

TEST(Endpoint, EveryWrongByteIsRefused) {
  const auto good = verbs::Endpoint{}.to_wire();
  ASSERT_OK(verbs::Endpoint::from_wire(good));
  for (const std::size_t index : {16U, 20U, 26U, 27U}) {  // number, psn, mtu, reserved
    auto bad = good;
    bad[index] = std::byte{0x99};
    EXPECT_CODE(verbs::Endpoint::from_wire(bad), kProtocol);
  }
  auto zero_mtu = good;
  zero_mtu[26] = std::byte{0};
  EXPECT_CODE(verbs::Endpoint::from_wire(zero_mtu), kProtocol);
  EXPECT_CODE(verbs::Endpoint::from_wire(std::span{good}.first(27)), kProtocol);
}

}  // namespace
}  // namespace remora::test
