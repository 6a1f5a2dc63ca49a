/// How far the requests of a lane have got, and what is reported of them.

#include "transport/tcp/posted_requests.h"

#include <array>
#include <cstdint>
#include <gtest/gtest.h>

namespace remora::transport::tcp {
namespace {

/// Requests from `first` to `last`, of which the last is answered.
PostedRequests post_writes(std::uint64_t first, std::uint64_t last) {
  PostedRequests requests{8};
  requests.begin_chain(first);
  for (std::uint64_t sequence = first; sequence <= last; ++sequence)
    requests.at(sequence) = {.opcode = Opcode::kWrite, .answered = sequence == last};
  requests.end_chain(last + 1);
  return requests;
}

TEST(TcpPostedRequests, CapacityIsAPowerOfTwo) {
  EXPECT_EQ(PostedRequests{5}.capacity(), 8U);
  EXPECT_EQ(PostedRequests{8}.capacity(), 8U);
}

TEST(TcpPostedRequests, FirstAnswerIsThatOfTheChainsEnd) {
  const PostedRequests requests = post_writes(100, 102);
  EXPECT_EQ(requests.expected(), 102U);
  EXPECT_EQ(requests.done_end(), 100U);
  EXPECT_EQ(requests.next_sequence(), 103U);
}

TEST(TcpPostedRequests, SuccessIsReportedOnceForAll) {
  PostedRequests requests = post_writes(100, 102);
  std::array<LaneCompletion, 4> found{};
  EXPECT_EQ(requests.report(found), 0U);
  requests.advance(103, 103);
  ASSERT_EQ(requests.report(found), 1U);
  EXPECT_EQ(found[0].sequence, 102U);
  EXPECT_EQ(found[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(requests.report(found), 0U);
}

TEST(TcpPostedRequests, FaultFollowsWhatSucceededAndFlushesTheRest) {
  PostedRequests requests = post_writes(100, 102);
  requests.fail(101, CompletionStatus::kRemoteAccessError);
  EXPECT_TRUE(requests.failed());
  std::array<LaneCompletion, 2> found{};
  ASSERT_EQ(requests.report(found), 2U) << "as many as there is room for";
  EXPECT_EQ(found[0].sequence, 100U);
  EXPECT_EQ(found[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(found[1].sequence, 101U);
  EXPECT_EQ(found[1].status, CompletionStatus::kRemoteAccessError);
  ASSERT_EQ(requests.report(found), 1U);
  EXPECT_EQ(found[0].sequence, 102U);
  EXPECT_EQ(found[0].status, CompletionStatus::kFlushed);
  EXPECT_EQ(requests.report(found), 0U);
}

}  // namespace
}  // namespace remora::transport::tcp
