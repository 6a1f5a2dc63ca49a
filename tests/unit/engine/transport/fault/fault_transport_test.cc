/// Faults on demand, over a lane and a server whose every step the test decides.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include <remora/testing/fault_transport.h>

#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "transport/fault/core.h"
#include "transport/fault/lane.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::transport {
namespace {

using remora::testing::FaultCounts;
using remora::testing::FaultOptions;
using remora::testing::FaultRates;
using remora::testing::FaultTransport;
using remora::testing::Landing;
using std::chrono::milliseconds;

class PolledLane final : public FakeLane {
 public:
  PolledLane() : FakeLane{64} { results.resize(64); }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }

 private:
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

bool readable(int fd, milliseconds within) {
  pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, static_cast<int>(within.count())) == 1;
}

class FaultLaneTest : public ::testing::Test {
 protected:
  void open(const FaultOptions& options = {}) {
    faults_.emplace(FaultTransport::create(options).value());
    next_lane();
  }
  void next_lane() {
    auto real = std::make_unique<PolledLane>();
    real_ = real.get();
    lane_ = FaultLane::create(faults_->hook(), link_, std::move(real)).value();
    next_ = 0;
  }
  void post(std::size_t count, Opcode opcode = Opcode::kWrite) {
    requests_.assign(count, {});
    std::vector<const WorkRequest*> chain;
    for (std::size_t i = 0; i < count; ++i) {
      requests_[i].opcode = opcode;
      requests_[i].remote_address = next_ + i;
      chain.push_back(&requests_[i]);
    }
    const PostOutcome outcome = lane_->post(chain, next_);
    ASSERT_EQ(outcome.error, 0);
    ASSERT_EQ(outcome.taken, count);
    next_ += count;
  }
  std::vector<LaneCompletion> poll() {
    std::array<LaneCompletion, 64> found{};
    const std::size_t count = lane_->poll(found);
    return {found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::vector<CompletionStatus> statuses() {
    std::vector<CompletionStatus> found;
    for (const LaneCompletion& each : poll()) found.push_back(each.status);
    return found;
  }
  [[nodiscard]] FaultCounts counts() const { return faults_->counts(); }

  std::optional<FaultTransport> faults_;
  std::shared_ptr<detail::FaultLink> link_ = std::make_shared<detail::FaultLink>();
  PolledLane* real_ = nullptr;
  std::unique_ptr<Lane> lane_;
  std::vector<WorkRequest> requests_;
  std::uint64_t next_ = 0;
};

constexpr auto kOk = CompletionStatus::kSuccess;
constexpr auto kGone = CompletionStatus::kFlushed;
constexpr auto kFirstGone = CompletionStatus::kRetryExceeded;

TEST(FaultTransportTest, RatesOutsideOfTheirRangeAreRefused) {
  for (double FaultRates::*chance :
       {&FaultRates::lose_lane, &FaultRates::lose_connection, &FaultRates::landed,
        &FaultRates::delay, &FaultRates::hold, &FaultRates::reorder, &FaultRates::refuse_connect,
        &FaultRates::drop_answer})
    for (const double wrong : {-0.01, 1.01, std::nan("")}) {
      FaultOptions options;
      options.rates.*chance = wrong;
      const auto made = FaultTransport::create(options);
      ASSERT_FALSE(made);
      EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
    }
  const auto faults = FaultTransport::create().value();
  for (const FaultRates& wrong :
       {FaultRates{.delay_least = milliseconds{-1}},
        FaultRates{.delay_least = milliseconds{2}, .max_delay = milliseconds{1}},
        FaultRates{.max_delay = remora::testing::kMaxFaultDelay + milliseconds{1}}}) {
    const Status status = faults.set_rates(wrong);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(FaultLaneTest, WithoutFaultsAllGoesThrough) {
  open();
  post(3);
  EXPECT_EQ(real_->posted.size(), 3U);
  EXPECT_TRUE(poll().empty());
  real_->complete(1);
  const auto found = poll();
  ASSERT_EQ(found.size(), 1U) << "one stands for those before it";
  EXPECT_EQ(found[0].sequence, 1U);
  real_->complete(2, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(statuses(), std::vector{CompletionStatus::kRemoteAccessError});
  EXPECT_EQ(counts().requests, 3U);
  EXPECT_EQ(counts().lanes, 1U);
}

TEST_F(FaultLaneTest, WhatHasLandedIsLostWhenItHasLanded) {
  open();
  faults_->lose_next_lane(Landing::kLanded, 1);
  post(3);
  EXPECT_EQ(real_->posted.size(), 2U) << "what comes behind the lost one is never sent";
  EXPECT_TRUE(poll().empty());
  real_->complete(1);
  EXPECT_EQ(statuses(), (std::vector{kFirstGone, kGone, kGone}));
  EXPECT_EQ(counts().lanes_lost, 1U);
  EXPECT_EQ(counts().requests_landed, 2U);
  EXPECT_EQ(counts().requests_unsent, 1U);
}

TEST_F(FaultLaneTest, WhatIsLostBeforeItIsSentHasNoEffect) {
  open();
  faults_->lose_next_lane(Landing::kLost);
  post(2);
  EXPECT_TRUE(real_->posted.empty());
  EXPECT_TRUE(readable(lane_->event_fd(), milliseconds{0}))
      << "nothing else wakes a sleeping thread";
  EXPECT_EQ(statuses(), (std::vector{kFirstGone, kGone}));
  post(1);
  EXPECT_TRUE(real_->posted.empty()) << "a lane that is lost sends nothing";
  EXPECT_EQ(statuses(), std::vector{kGone});
  next_lane();
  post(1);
  EXPECT_EQ(real_->posted.size(), 1U) << "the next lane is sound";
  EXPECT_EQ(counts().requests_unsent, 3U);
}

TEST_F(FaultLaneTest, AConnectionGoesWhenWhatLandsHasLandedAndTheLaneIsToldByTheSession) {
  open();
  const auto endpoint = std::make_shared<FakeServerEndpoint>(FakeServerEndpoint::Offer{});
  link_->endpoint = endpoint;
  faults_->lose_next_connection(Landing::kLanded);
  post(1);
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(link_->cut) << "the session would end requests that are to land";
  real_->complete(0);
  EXPECT_TRUE(poll().empty());
  EXPECT_TRUE(link_->cut);
  lane_->move_to_error();
  EXPECT_EQ(statuses(), std::vector{kFirstGone});
  EXPECT_EQ(counts().connections_lost, 1U);
  EXPECT_EQ(counts().lanes_lost, 0U);
  EXPECT_EQ(counts().requests_landed, 1U);
}

TEST_F(FaultLaneTest, ADelayedCompletionComesWhenItIsDueAndWakesAThread) {
  open();
  faults_->delay_next(1, milliseconds{500});
  post(2);
  const auto began = Clock::now();
  real_->complete(1);
  const bool waits = poll().empty();
  if (!waits && Clock::now() - began >= milliseconds{500})
    GTEST_SKIP() << "the host stood still for the delay";
  EXPECT_TRUE(waits) << "the second waits behind the first";
  EXPECT_TRUE(readable(lane_->event_fd(), milliseconds{30'000}));
  EXPECT_GE(Clock::now() - began, milliseconds{500});
  lane_->drain_events();
  EXPECT_EQ(statuses(), std::vector{kOk});
  EXPECT_FALSE(readable(lane_->event_fd(), milliseconds{0}));
  EXPECT_EQ(counts().completions_delayed, 1U);
}

TEST_F(FaultLaneTest, WhatIsHeldComesWhenItIsReleased) {
  open();
  faults_->hold_completions();
  post(1);
  real_->complete(0);
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(readable(lane_->event_fd(), milliseconds{0}));
  faults_->release_completions();
  EXPECT_TRUE(readable(lane_->event_fd(), milliseconds{0}));
  EXPECT_EQ(statuses(), std::vector{kOk});
  EXPECT_EQ(counts().completions_held, 1U);
}

TEST_F(FaultLaneTest, WhatIsHeldWhenTheLaneGoesIsLost) {
  open();
  post(2);
  real_->complete(0);
  EXPECT_EQ(statuses(), std::vector{kOk});
  faults_->hold_completions();
  real_->complete(1);
  EXPECT_TRUE(poll().empty());
  lane_->move_to_error();
  EXPECT_EQ(real_->broken, 1);
  EXPECT_EQ(statuses(), std::vector{kGone});
  EXPECT_EQ(counts().requests_landed, 1U);
}

TEST_F(FaultLaneTest, WhatIsHeldByChanceIsReleasedTooAndWhatFollowsIsNot) {
  open({.rates = {.hold = 1}});
  post(1);
  real_->complete(0);
  EXPECT_TRUE(poll().empty());
  faults_->release_completions();
  EXPECT_EQ(statuses(), std::vector{kOk});
  post(1);
  real_->complete(1);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(counts().completions_held, 2U);
}

TEST_F(FaultLaneTest, ReorderedRequestsAreToldOfInTheirOwnOrder) {
  open({.rates = {.reorder = 1}});
  post(16, Opcode::kFetchAdd);
  ASSERT_EQ(real_->posted.size(), 16U);
  std::vector<std::uint64_t> order;
  for (const FakeLane::Seen& seen : real_->posted) order.push_back(seen.request.remote_address);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  for (std::uint64_t i = 0; i < 16; ++i) real_->results[i] = 100 + order[i];
  // All but the last that was sent: what is told of is what stands before that.
  real_->complete(14);
  const auto found = poll();
  const std::uint64_t missing = order[15];
  EXPECT_EQ(found.empty() ? 0 : found.back().sequence + 1, missing);
  real_->complete(15);
  ASSERT_EQ(poll().back().sequence, 15U);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(lane_->atomic_results()[i], 100 + i);
  EXPECT_EQ(counts().chains_reordered, 1U);
}

TEST_F(FaultLaneTest, AFailureAmongReorderedRequestsIsThatOfItsOwnRequest) {
  open({.rates = {.reorder = 1}});
  post(8);
  real_->complete(3, CompletionStatus::kRemoteAccessError);
  const std::uint64_t refused = real_->posted[3].request.remote_address;
  real_->move_to_error();
  lane_->move_to_error();
  std::vector<CompletionStatus> by_sequence(8, kOk);
  for (const LaneCompletion& each : poll()) by_sequence[each.sequence] = each.status;
  for (std::uint64_t at = 0; at < 8; ++at) {
    const std::uint64_t sequence = real_->posted[at].request.remote_address;
    EXPECT_EQ(by_sequence[sequence], at < 3                ? kOk
                                     : sequence == refused ? CompletionStatus::kRemoteAccessError
                                                           : kGone);
  }
}

using FaultLaneDeathTest = FaultLaneTest;

TEST_F(FaultLaneDeathTest, RequestsArePostedInTheirOrder) {
  open();
  post(2);
  const WorkRequest request;
  const WorkRequest* const chain = &request;
  EXPECT_DEATH((void)lane_->post({&chain, 1}, next_ + 1),
               "a bug in Remora: requests are posted in their order");
}

TEST_F(FaultLaneTest, ANoticeStaysBehindItsWrite) {
  open({.rates = {.reorder = 1}});
  const Notice notice{};
  for (int round = 0; round < 8; ++round) {
    requests_.assign(2, {});
    requests_[0].opcode = Opcode::kWrite;
    requests_[1] = WorkRequest::notify(notice);
    const std::array<const WorkRequest*, 2> chain{&requests_[0], &requests_[1]};
    ASSERT_EQ(lane_->post(chain, next_).taken, 2U);
    EXPECT_EQ(real_->posted[next_].request.opcode, Opcode::kWrite);
    next_ += 2;
  }
  EXPECT_EQ(counts().chains_reordered, 0U);
}

/// At which of its requests each of five lanes was lost, in chains of so many.
std::vector<std::uint64_t> lives(std::uint64_t seed, std::size_t chain_length) {
  constexpr std::uint64_t kMax = 8000;
  const auto faults =
      FaultTransport::create({.seed = seed, .rates = {.lose_lane = 0.02, .landed = 1}}).value();
  std::vector<std::uint64_t> found;
  for (std::uint64_t lane = 0; lane < 5; ++lane) {
    auto real = std::make_unique<PolledLane>();
    PolledLane& seen = *real;
    const auto wrapped =
        FaultLane::create(faults.hook(), std::make_shared<detail::FaultLink>(), std::move(real))
            .value();
    const WorkRequest request;
    const std::vector<const WorkRequest*> chain(chain_length, &request);
    std::array<LaneCompletion, 64> told{};
    for (std::uint64_t next = 0; faults.counts().lanes_lost == lane && next < kMax;
         next += chain_length) {
      (void)wrapped->post(chain, next);
      seen.complete(seen.posted.back().sequence);
      (void)wrapped->poll(told);
    }
    found.push_back(seen.posted.size());
  }
  return found;
}

TEST_F(FaultLaneTest, ASeedAlwaysMakesTheSameFaultsHoweverRequestsAreChained) {
  const auto first = lives(7, 8);
  ASSERT_EQ(first.size(), 5U);
  EXPECT_LT(*std::max_element(first.begin(), first.end()), 8000U);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(lives(7, 8), first);
  EXPECT_EQ(lives(7, 1), first);
  EXPECT_NE(lives(8, 8), first);
}

TEST(FaultEndpointTest, SharedMemoryIsRefusedWithAnErrorThatSaysWhy) {
  const auto faults = FaultTransport::create().value();
  bool asked = false;
  const Connect connect = with_faults(faults.hook(), TransportKind::kShm, [&](Deadline) {
    asked = true;
    return Result<std::unique_ptr<ClientEndpoint>>{Error{Code::kInternal, "real"}};
  });
  const auto made = connect(deadline_after(std::chrono::seconds{10}));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kUnsupported);
  EXPECT_NE(made.error().message().find("name tcp or rdma"), std::string::npos);
  EXPECT_FALSE(asked);
}

TEST(FaultEndpointTest, ConnectsAreRefusedByNumberByTimeAndByChance) {
  const auto faults = FaultTransport::create().value();
  const Connect connect = with_faults(faults.hook(), TransportKind::kTcp, [](Deadline) {
    return Result<std::unique_ptr<ClientEndpoint>>{Error{Code::kUnreachable, "real"}};
  });
  const auto code = [&] {
    return connect(deadline_after(std::chrono::seconds{10})).error().code();
  };
  EXPECT_EQ(code(), Code::kUnreachable);
  faults.refuse_connects(2);
  EXPECT_EQ(code(), Code::kConnectionRefused);
  EXPECT_EQ(code(), Code::kConnectionRefused);
  EXPECT_EQ(code(), Code::kUnreachable);
  faults.refuse_connects_for(std::chrono::hours{1});
  EXPECT_EQ(code(), Code::kConnectionRefused);
  faults.refuse_connects_for(milliseconds{0});
  EXPECT_EQ(code(), Code::kUnreachable);
  ASSERT_TRUE(faults.set_rates({.refuse_connect = 1}));
  EXPECT_EQ(code(), Code::kConnectionRefused);
  EXPECT_EQ(faults.counts().connects, 3U);
  EXPECT_EQ(faults.counts().connects_refused, 4U);
}

class FaultAnswersTest : public ::testing::Test {
 protected:
  void ask() {
    if (endpoint_ == nullptr)
      endpoint_ =
          with_faults(faults_.hook(), TransportKind::kTcp,
                      [](Deadline) {
                        return Result<std::unique_ptr<ClientEndpoint>>{
                            std::make_unique<FakeServerEndpoint>(FakeServerEndpoint::Offer{})};
                      })(deadline_after(std::chrono::seconds{10}))
              .value();
    control::Envelope envelope;
    envelope.set_magic(control::kMagic);
    envelope.set_id(1);
    envelope.mutable_request()->mutable_list();
    ASSERT_TRUE(endpoint_->send({.bytes = control::encode(envelope).value(), .descriptors = {}},
                                deadline_after(std::chrono::seconds{10})));
  }
  bool answered() { return endpoint_->receive().value().has_value(); }

  FaultTransport faults_ = FaultTransport::create().value();
  std::unique_ptr<ClientEndpoint> endpoint_;
};

TEST_F(FaultAnswersTest, AnswersThatAreHeldComeWhenTheyAreReleased) {
  faults_.hold_answers();
  ask();
  ask();
  EXPECT_FALSE(answered());
  faults_.release_answers();
  EXPECT_TRUE(readable(endpoint_->event_fd(), milliseconds{0}));
  EXPECT_TRUE(answered());
  EXPECT_TRUE(answered());
  EXPECT_FALSE(answered());
  EXPECT_EQ(faults_.counts().answers_held, 2U);
}

TEST_F(FaultAnswersTest, AnswersThatAreDroppedNeverCome) {
  ASSERT_TRUE(faults_.set_rates({.drop_answer = 1}));
  ask();
  EXPECT_FALSE(answered());
  ASSERT_TRUE(faults_.set_rates({}));
  EXPECT_FALSE(answered());
  ask();
  EXPECT_TRUE(answered());
  EXPECT_EQ(faults_.counts().answers_dropped, 1U);
}

}  // namespace
}  // namespace remora::transport
