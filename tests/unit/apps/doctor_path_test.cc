// Where a path to a server breaks, and on whose side: from the engine's errors.

#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/path_check.h"
#include "doctor/path_place.h"

namespace remora::apps::doctor {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  Error error;
  Step step;
  Side side;
};

TEST(DoctorPath, EachErrorHasItsStepAndItsSide) {
  const Case cases[] = {
      {Error{Code::kNotFound, "getaddrinfo"}, Step::kName, Side::kClient},
      {Error{Code::kUnreachable, "connect over tcp"}.with_errno(ENETUNREACH), Step::kRoute,
       Side::kClient},
      {Error{Code::kUnreachable, "rdma_resolve_addr"}, Step::kRoute, Side::kNetwork},
      {Error{Code::kTimedOut, "connect over tcp"}, Step::kConnect, Side::kNetwork},
      {Error{Code::kConnectionRefused, "connect over tcp"}.with_errno(ECONNREFUSED), Step::kConnect,
       Side::kServer},
      {Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kAuthentication), Step::kKey,
       Side::kServer},
      {Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kDraining), Step::kHandshake,
       Side::kServer},
      {Error{Code::kProtocol, "hello"}.with_reason(Reason::kHttp), Step::kHandshake, Side::kServer},
      {Error{Code::kUnsupported, "open"}.with_reason(Reason::kNotOffered), Step::kOffer,
       Side::kServer},
      {Error{Code::kNotFound, "ibv_get_device_list"}, Step::kOffer, Side::kClient},
      {Error{Code::kNoRight, "create"}, Step::kRights, Side::kServer},
      {Error{Code::kOutOfMemory, "ibv_reg_mr"}.with_reason(Reason::kMemlock), Step::kMemory,
       Side::kClient},
      {Error{Code::kOutOfMemory, "open"}.with_server("storage7:7471"), Step::kMemory,
       Side::kServer},
      {Error{Code::kPermissionDenied, "ibv_open_device"}, Step::kMemory, Side::kClient},
      {Error{Code::kAccessRefused, "read"}, Step::kOperation, Side::kServer},
  };
  for (const Case& each : cases) {
    const Place place = place_of(each.error);
    EXPECT_EQ(to_string(place.step), to_string(each.step)) << each.error.message();
    EXPECT_EQ(to_string(place.side), to_string(each.side)) << each.error.message();
  }
}

TEST(DoctorPath, RefusedConnectionIsToldWithStepSideAndError) {
  const Error error = Error{Code::kConnectionRefused, "connect over tcp"}
                          .with_subject("storage7:7471")
                          .with_errno(ECONNREFUSED);
  const Finding named = broken_path(TransportKind::kTcp, error, true);
  EXPECT_EQ(named.id, "path.tcp.connect");
  EXPECT_EQ(named.colour, Colour::kRed);
  EXPECT_THAT(named.found,
              StartsWith("tcp breaks at the step 'connect', on the side of the server: "));
  EXPECT_THAT(named.found, HasSubstr("storage7:7471"));
  EXPECT_EQ(named.why, "no connection comes about");
  EXPECT_EQ(named.command, "on the server's host: systemctl status remora-server; ss -ltnp");
  EXPECT_EQ(broken_path(TransportKind::kTcp, error, false).colour, Colour::kYellow);
}

TEST(DoctorPath, TransportThatIsNotThereIsNoFaultWhereNoneWasNamed) {
  const Error error{Code::kNotFound, "ibv_get_device_list"};
  EXPECT_EQ(broken_path(TransportKind::kRdma, error, false).colour, Colour::kNotChecked);
  EXPECT_EQ(broken_path(TransportKind::kRdma, error, true).colour, Colour::kRed);
  const Error other = Error{Code::kUnreachable, "find the server over shm"};
  EXPECT_EQ(broken_path(TransportKind::kShm, other, false).colour, Colour::kNotChecked);
}

TEST(DoctorPath, TransportThatTheServerDoesNotOfferIsNoFault) {
  const Error error = Error{Code::kConnectionRefused, "rdma_connect"};
  Findings findings{broken_path(TransportKind::kRdma, error, false),
                    broken_path(TransportKind::kShm, error, false)};
  ServerInfo server;
  excuse_absent(findings, server);  // an older server: it did not tell
  EXPECT_EQ(findings[0].colour, Colour::kYellow);
  server.transports = {TransportKind::kTcp, TransportKind::kShm};
  excuse_absent(findings, server);
  EXPECT_EQ(findings[0].colour, Colour::kNotChecked);
  EXPECT_THAT(findings[0].found, EndsWith("; the server does not offer rdma"));
  EXPECT_EQ(findings[1].colour, Colour::kYellow);
}

TEST(DoctorPath, AddressNeedsNoNameServer) {
  const Findings findings = check_name(Uri::parse("remora://127.0.0.1:7471").value());
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().id, "path.name");
  EXPECT_EQ(findings.front().found, "127.0.0.1 is 127.0.0.1");
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings.back().found, "packets to 127.0.0.1 go from 127.0.0.1");
}

}  // namespace
}  // namespace remora::apps::doctor
