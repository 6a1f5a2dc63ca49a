#include "client/engine/passed_over.h"

#include <gmock/gmock.h>
#include <string>

namespace remora::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Error kNoSocket =
    Error{Code::kConnectionRefused, "connect over shm"}.with_subject("/run/remora-7471.sock");
const Error kOtherServer = Error{Code::kConnectionRefused, "find the server over shm"}.with_subject(
    "127.0.0.1:7471 is not [::1]:7471, which has /run/remora-7471.sock");
const Error kNoDevice{Code::kNotFound, "rdma_get_devices"};
const Error kTcpRefused =
    Error{Code::kConnectionRefused, "connect over tcp"}.with_subject("127.0.0.1:7471");

PassedOver tried(const Error& shm, const Error& rdma, const Error& tcp) {
  PassedOver passed_over;
  passed_over.add_unreached(TransportKind::kShm, shm);
  passed_over.add_unreached(TransportKind::kRdma, rdma);
  passed_over.add_unreached(TransportKind::kTcp, tcp);
  return passed_over;
}

TEST(PassedOver, CauseIsThatOfTcpWhereNoServerIs) {
  EXPECT_EQ(tried(kNoSocket, kNoDevice, kTcpRefused).cause().operation(), "connect over tcp");
}

TEST(PassedOver, CauseNamesTheAddressAtWhichAServerOfThisHostListens) {
  const Error cause = tried(kOtherServer, kNoDevice, kTcpRefused).cause();
  EXPECT_EQ(cause.operation(), "connect over tcp");
  EXPECT_THAT(cause.message(), HasSubstr("a server of this host listens at [::1]:7471"));
  EXPECT_THAT(cause.message(), Not(HasSubstr("transport=shm")));
}

TEST(PassedOver, AnswerOfTheServerComesBeforeWhyOthersCannotBeReached) {
  const Error not_for_shm{Code::kUnsupported, "open over shm"};
  PassedOver passed_over;
  passed_over.add_answered(TransportKind::kShm, not_for_shm);
  passed_over.add_unreached(TransportKind::kRdma, kNoDevice);
  passed_over.add_unreached(TransportKind::kTcp, kTcpRefused);
  EXPECT_EQ(passed_over.cause().code(), Code::kUnsupported);
  passed_over.add_answered(TransportKind::kTcp, Error{Code::kOutOfMemory, "open"});
  EXPECT_EQ(passed_over.cause().code(), Code::kOutOfMemory) << "it says more than the transport";
}

TEST(PassedOver, ServerOfAnotherUserIsTheCauseWhereTcpIsRefused) {
  const Error other_user{Code::kPermissionDenied, "connect over shm"};
  EXPECT_EQ(tried(other_user, kNoDevice, kTcpRefused).cause().code(), Code::kPermissionDenied);
}

TEST(PassedOver, NameThatIsNotFoundIsTheCauseThoughThereIsNoDevice) {
  const Error no_name{Code::kNotFound, "getaddrinfo"};
  EXPECT_EQ(tried(kNoSocket, no_name, no_name).cause().operation(), "getaddrinfo");
}

TEST(PassedOver, SettingThatThePortLacksIsTheCauseAndNoMissingDevice) {
  const Error no_row =
      Error{Code::kNotFound, "rdma setting that the port does not have"}.with_subject(
          "gid_index=7 on port 1 of mlx5_0, which has 0-3");
  const PassedOver passed_over = tried(kNoSocket, no_row, kTcpRefused);
  EXPECT_EQ(passed_over.cause().subject(), no_row.subject());
  EXPECT_THAT(passed_over.reason(TransportKind::kTcp, "nothing faster there"),
              HasSubstr("rdma: no gid_index=7; "));
}

TEST(PassedOver, ReasonIsOneShortLine) {
  PassedOver none;
  EXPECT_EQ(none.reason(TransportKind::kShm, "same host"), "shm: same host");
  const std::string reason = tried(kOtherServer, kNoDevice, kTcpRefused)
                                 .reason(TransportKind::kTcp, "nothing faster there");
  EXPECT_EQ(reason,
            "tcp: nothing faster there (shm: 127.0.0.1:7471 is not [::1]:7471; rdma: no device; "
            "tcp: connection refused)");
  const std::string address(47, '6');
  const Error lengthy = kOtherServer.with_subject(address + " is not " + address);
  const std::string cut =
      tried(lengthy, kNoDevice, lengthy).reason(TransportKind::kTcp, "nothing faster there");
  EXPECT_EQ(cut.size(), PassedOver::kMaxReasonBytes);
  EXPECT_TRUE(cut.ends_with("...)")) << cut;
}

TEST(PassedOver, TextHasAllInFull) {
  PassedOver passed_over = tried(kNoSocket, kNoDevice, kTcpRefused);
  const std::string text = passed_over.text();
  EXPECT_THAT(text, HasSubstr("shm: connect over shm: /run/remora-7471.sock: "));
  EXPECT_THAT(text, HasSubstr("; rdma: rdma_get_devices: "));
  EXPECT_THAT(text, HasSubstr("; tcp: connect over tcp: 127.0.0.1:7471: "));
}

}  // namespace
}  // namespace remora::detail
