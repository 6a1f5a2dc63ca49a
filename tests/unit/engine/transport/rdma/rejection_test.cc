#include "transport/rdma/rejection.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <string>

namespace remora::transport::rdma {
namespace {

TEST(Rejection, NumbersReasonAndTextArriveAtTheClient) {
  const Error why = Error{Code::kOutOfMemory, "ibv_reg_mr"}
                        .with_errno(ENOMEM)
                        .with_reason(Reason::kMemlock)
                        .with_subject("mlx5_0: 65536 bytes are pinned, the limit is 65536")
                        .with_limit(2'162'688, 0);
  const Error told = Rejection::from_wire(Rejection::to_wire(why)).value();
  EXPECT_EQ(told.code(), Code::kConnectionRefused);
  EXPECT_EQ(told.reason(), Reason::kMemlock);
  EXPECT_EQ(told.subject(), "ibv_reg_mr: mlx5_0: 65536 bytes are pinned, the limit is 65536");
  EXPECT_EQ(told.asked(), 2'162'688U);
  EXPECT_EQ(told.allowed(), 0U);
  EXPECT_NE(told.message().find("ulimit -l"), std::string::npos) << told.message();
}

TEST(Rejection, ErrnoOfTheServerIsTextAndNotTheClients) {
  const Error why =
      Error{Code::kProvider, "ibv_create_cq"}.with_errno(EMFILE).with_subject("mlx5_0");
  const Error told = Rejection::from_wire(Rejection::to_wire(why)).value();
  EXPECT_EQ(told.system_errno(), 0) << "the client has files enough";
  EXPECT_EQ(told.subject(), "ibv_create_cq: mlx5_0: Too many open files");
  EXPECT_EQ(told.remedy(), "the server's log has the rest");
}

TEST(Rejection, LongTextsAreCutAndOddOnesMadePrintable) {
  const Error why = Error{Code::kProtocol, "lane"}.with_subject(std::string(200, 'x'));
  const Error told = Rejection::from_wire(Rejection::to_wire(why)).value();
  EXPECT_TRUE(told.subject().starts_with("lane: xxx")) << told.subject();
  auto wire = Rejection::to_wire(why);
  wire[Rejection::kHeadBytes] = std::byte{7};
  EXPECT_EQ(Rejection::from_wire(wire).value().subject().front(), '?');
}

TEST(Rejection, OtherBytesAreNone) {
  const auto wire = Rejection::to_wire(Error{Code::kProtocol, "lane"});
  EXPECT_FALSE(Rejection::from_wire({}));
  EXPECT_FALSE(Rejection::from_wire(std::vector<std::byte>(148)));
  EXPECT_FALSE(Rejection::from_wire(std::span{wire}.first(23)));
  for (const std::size_t at : {0U, 3U, 4U, 6U, 7U}) {
    auto wrong = wire;
    wrong[at] ^= std::byte{0xf0};
    EXPECT_FALSE(Rejection::from_wire(wrong)) << at;
  }
  auto newer = wire;
  newer[5] = std::byte{0xff};
  EXPECT_EQ(Rejection::from_wire(newer).value().reason(), Reason::kNone);
}

}  // namespace
}  // namespace remora::transport::rdma
