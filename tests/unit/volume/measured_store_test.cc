// The series of the calls to a store.

#include "measured_store.h"

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <remora/volume/open_store.h>

#include "support/assert_ok.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kErrors = "remora_cluster_store_errors_total";
constexpr const char* kLatency = "remora_cluster_store_latency_seconds";

/// Answers every call with the error, or with nothing in particular.
class PlainStore final : public MetadataStore {
 public:
  Result<Snapshot> get(std::span<const std::string> /*keys*/,
                       std::chrono::nanoseconds /*limit*/) override {
    return answer(Snapshot{.revision = 7});
  }
  Result<Snapshot> range(std::string_view /*prefix*/, std::chrono::nanoseconds /*limit*/) override {
    return answer(Snapshot{.revision = 8});
  }
  Result<Committed> commit(const Transaction& /*transaction*/,
                           std::chrono::nanoseconds /*limit*/) override {
    return answer(Committed{.outcome = outcome_});
  }
  Result<LeaseId> grant_lease(std::chrono::seconds /*lifetime*/,
                              std::chrono::nanoseconds /*limit*/) override {
    return answer(LeaseId{5});
  }
  Status keep_alive(LeaseId /*lease*/, std::chrono::nanoseconds /*limit*/) override {
    return status();
  }
  Status revoke(LeaseId /*lease*/, std::chrono::nanoseconds /*limit*/) override { return status(); }
  [[nodiscard]] std::string name() const override { return "plain"; }

  void fail(std::optional<Code> code) { code_ = code; }
  void set_outcome(Outcome outcome) { outcome_ = outcome; }

 private:
  template <typename T>
  [[nodiscard]] Result<T> answer(T value) const {
    if (code_) return Error{*code_, "store"};
    return value;
  }
  [[nodiscard]] Status status() const {
    if (code_) return Error{*code_, "store"};
    return ok_status();
  }

  std::optional<Code> code_;
  Outcome outcome_ = Outcome::kApplied;
};

class MeasuredStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] double errors(const metrics::Labels& labels = {}) const {
    return registry_->sum(kErrors, labels).value();
  }
  [[nodiscard]] std::uint64_t answers(const std::string& op) const {
    return registry_->distribution(kLatency, {{"op", op}}).value().count();
  }

  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::shared_ptr<PlainStore> plain_ = std::make_shared<PlainStore>();
  MeasuredStore store_{plain_, StoreMetrics::create(registry_, StoreKind::kEtcd).value()};
  const std::string key_ = "/a";
};

TEST_F(MeasuredStoreTest, AnswersComeThroughAndHaveALatency) {
  EXPECT_EQ(store_.get({&key_, 1}, 1s).value().revision, 7U);
  EXPECT_EQ(store_.range("/", 1s).value().revision, 8U);
  EXPECT_EQ(store_.commit({}, 1s).value().outcome, Outcome::kApplied);
  EXPECT_EQ(store_.grant_lease(10s, 1s).value(), 5U);
  ASSERT_OK(store_.keep_alive(5, 1s));
  ASSERT_OK(store_.revoke(5, 1s));
  EXPECT_EQ(store_.name(), "plain");
  EXPECT_EQ(answers("get"), 2U);
  EXPECT_EQ(answers("commit"), 1U);
  EXPECT_EQ(answers("lease"), 3U);
  EXPECT_EQ(errors(), 0);
}

/// A condition that does not hold is an answer.
TEST_F(MeasuredStoreTest, RefusedTransactionIsNoError) {
  plain_->set_outcome(Outcome::kRefused);
  ASSERT_OK(store_.commit({}, 1s));
  EXPECT_EQ(answers("commit"), 1U);
  EXPECT_EQ(errors(), 0);
}

TEST_F(MeasuredStoreTest, UnknownOutcomeIsAnErrorOfTransactions) {
  plain_->set_outcome(Outcome::kUnknown);
  EXPECT_EQ(store_.commit({}, 1s).value().outcome, Outcome::kUnknown);
  EXPECT_EQ(answers("commit"), 0U);
  EXPECT_EQ(errors({{"op", "commit"}, {"reason", "unknown"}}), 1);
  EXPECT_EQ(errors(), 1);
}

TEST_F(MeasuredStoreTest, ErrorsAreCountedByCallAndReason) {
  const std::pair<Code, const char*> causes[] = {{Code::kTimedOut, "timed_out"},
                                                 {Code::kUnreachable, "unreachable"},
                                                 {Code::kPermissionDenied, "denied"},
                                                 {Code::kProtocol, "other"}};
  for (const auto& [code, reason] : causes) {
    plain_->fail(code);
    EXPECT_EQ(store_.get({&key_, 1}, 1s).error().code(), code);
    EXPECT_EQ(store_.range("/", 1s).error().code(), code);
    EXPECT_EQ(store_.commit({}, 1s).error().code(), code);
    EXPECT_EQ(store_.grant_lease(10s, 1s).error().code(), code);
    EXPECT_EQ(store_.keep_alive(5, 1s).error().code(), code);
    EXPECT_EQ(store_.revoke(5, 1s).error().code(), code);
    EXPECT_EQ(errors({{"op", "get"}, {"reason", reason}}), 2) << reason;
    EXPECT_EQ(errors({{"op", "commit"}, {"reason", reason}}), 1) << reason;
    EXPECT_EQ(errors({{"op", "lease"}, {"reason", reason}}), 3) << reason;
  }
  EXPECT_EQ(answers("get") + answers("commit") + answers("lease"), 0U);
}

TEST_F(MeasuredStoreTest, LeaseThatHasEndedHasAReasonOfItsOwn) {
  plain_->fail(Code::kNotFound);
  EXPECT_FALSE(store_.keep_alive(5, 1s).ok());
  EXPECT_FALSE(store_.commit({}, 1s).ok());
  EXPECT_EQ(errors({{"op", "lease"}, {"reason", "lease_ended"}}), 1);
  EXPECT_EQ(errors({{"op", "commit"}, {"reason", "lease_ended"}}), 1);
  EXPECT_FALSE(store_.range("/", 1s).ok());  // no lease is in it
  EXPECT_EQ(errors({{"op", "get"}, {"reason", "other"}}), 1);
}

/// As many stores as an application likes, in one registry.
TEST_F(MeasuredStoreTest, StoresOfOneKindShareTheirSeries) {
  const std::size_t series = registry_->series_count();
  MeasuredStore second{plain_, StoreMetrics::create(registry_, StoreKind::kEtcd).value()};
  EXPECT_EQ(registry_->series_count(), series);
  ASSERT_OK(second.range("/", 1s));
  ASSERT_OK(store_.range("/", 1s));
  EXPECT_EQ(answers("get"), 2U);
  ASSERT_OK(StoreMetrics::create(registry_, StoreKind::kFile));
  EXPECT_EQ(registry_->series_count(), 2 * series);
  EXPECT_LE(series, 48U) << "series of one kind of store";
}

TEST_F(MeasuredStoreTest, RegistryWithoutRoomChangesNoCall) {
  const auto full = metrics::Registry::create({.series_max = 3}).value();
  MeasuredStore store{plain_, StoreMetrics::create(full, StoreKind::kEtcd).value()};
  EXPECT_EQ(store.range("/", 1s).value().revision, 8U);
  plain_->fail(Code::kTimedOut);
  EXPECT_FALSE(store.range("/", 1s).ok());
  EXPECT_LE(full->series_count(), 3U);
}

TEST_F(MeasuredStoreTest, NameThatIsAnotherSeriesIsAnError) {
  const auto taken = metrics::Registry::create().value();
  ASSERT_OK(taken->gauge("remora_cluster_store_latency_seconds", "Not this one."));
  EXPECT_CODE(StoreMetrics::create(taken, StoreKind::kFile), kAlreadyExists);
}

/// The registry of open_store() is what makes a store count.
TEST_F(MeasuredStoreTest, OpenedFileCountsItsCalls) {
  const TemporaryFolder folder;
  VolumeUri uri;
  uri.store = StoreKind::kFile;
  uri.path = folder.path() + "/cluster.json";
  const auto opened = open_store(uri, {.registry = registry_}).value();
  ASSERT_OK(opened->commit({{}, {{key_, "1", kNoLease}}}, 10s));
  const auto answered = registry_->distribution(kLatency, {{"store", "file"}, {"op", "commit"}});
  EXPECT_EQ(answered.value().count(), 1U);
  EXPECT_EQ(answers("commit"), 1U) << "none of etcd";
  ASSERT_OK(open_store(uri).value()->range("/", 10s));
  EXPECT_EQ(answers("get"), 0U) << "a store without a registry";
}

}  // namespace
}  // namespace remora::volume::test
