// What every store promises: a file, and a real etcd.

#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/volume/metadata_store.h>
#include <remora/volume/open_store.h>
#include <remora/volume/uri.h>

#include "support/assert_ok.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kLimit = 10s;

/// One etcd for all cases of this program; each case has keys of its own.
class Stores : public ::testing::TestWithParam<StoreKind> {
 protected:
  static void TearDownTestSuite() { etcd_.reset(); }
  void SetUp() override {
    if (GetParam() == StoreKind::kEtcd) {
      if (!has_etcd()) GTEST_SKIP() << "etcd is not installed: ci/setup.sh cluster";
      if (!etcd_) etcd_ = std::make_unique<EtcdProcess>();
    }
    store_ = open();
    static int cases = 0;
    prefix_ = "/test/" + std::to_string(++cases) + "/";
  }
  /// Another client's.
  std::shared_ptr<MetadataStore> open() {
    VolumeUri uri;
    uri.store = GetParam();
    if (GetParam() == StoreKind::kEtcd)
      uri.endpoints = {etcd_->endpoint()};
    else
      uri.path = folder_.path() + "/cluster.json";
    return open_store(uri).value();
  }
  MetadataStore& store() { return *store_; }
  [[nodiscard]] std::string key(const std::string& name) const { return prefix_ + name; }
  Outcome commit(const Transaction& transaction) {
    return store().commit(transaction, kLimit).value().outcome;
  }
  Outcome put(const std::string& name, const std::string& value, LeaseId lease = kNoLease) {
    return commit({{}, {{key(name), value, lease}}});
  }
  std::optional<std::string> value(const std::string& name) {
    const auto entry = get_one(store(), key(name), kLimit).value();
    return entry ? std::optional{entry->value} : std::nullopt;
  }

 private:
  static inline std::unique_ptr<EtcdProcess> etcd_;
  TemporaryFolder folder_;
  std::shared_ptr<MetadataStore> store_;
  std::string prefix_;
};

TEST_P(Stores, ValuesOfAnyBytesComeBack) {
  EXPECT_EQ(value("a"), std::nullopt);
  const std::string bytes = "{\"x\": \"\xc3\xa9\\n\"}\n";
  EXPECT_EQ(put("a", bytes), Outcome::kApplied);
  EXPECT_EQ(value("a"), bytes);
  EXPECT_EQ(put("a", ""), Outcome::kApplied);
  EXPECT_EQ(value("a"), "");
}

TEST_P(Stores, AnotherClientSeesWhatWasCommitted) {
  ASSERT_EQ(put("a", "1"), Outcome::kApplied);
  const auto other = open();
  const auto entry = get_one(*other, key("a"), kLimit).value();
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->value, "1");
}

TEST_P(Stores, RangeIsSortedAndEndsWithThePrefix) {
  ASSERT_EQ(commit({{}, {{key("r/b"), "2"}, {key("r/a"), "1"}, {key("r0"), "3"}, {key("q"), "4"}}}),
            Outcome::kApplied);
  const auto found = store().range(key("r/"), kLimit).value();
  ASSERT_EQ(found.entries.size(), 2U);
  EXPECT_EQ(found.entries[0].key, key("r/a"));
  EXPECT_EQ(found.entries[1].value, "2");
  EXPECT_EQ(found.find(key("r/b")), &found.entries[1]);
  EXPECT_EQ(found.find(key("r")), nullptr);
  EXPECT_GE(found.revision, found.entries[0].revision);
}

TEST_P(Stores, RangeIsWholeBeyondAPage) {
  constexpr int kTransactions = 11;
  constexpr int kEach = 100;
  for (int i = 0; i < kTransactions; ++i) {
    Transaction transaction;
    for (int j = 0; j < kEach; ++j)
      transaction.changes.push_back({key("n/" + std::to_string(1000 + i * kEach + j)), "x"});
    ASSERT_EQ(commit(transaction), Outcome::kApplied);
  }
  const auto found = store().range(key("n/"), kLimit).value();
  EXPECT_EQ(found.entries.size(), std::size_t{kTransactions} * kEach);
}

TEST_P(Stores, RefusedTransactionChangesNothing) {
  ASSERT_EQ(put("a", "1"), Outcome::kApplied);
  EXPECT_EQ(commit({{{key("a"), "2"}}, {{key("a"), "3"}}}), Outcome::kRefused);
  EXPECT_EQ(commit({{{key("a"), std::nullopt}}, {{key("a"), "3"}}}), Outcome::kRefused);
  EXPECT_EQ(commit({{{key("a"), "1"}, {key("b"), "1"}}, {{key("a"), "3"}}}), Outcome::kRefused);
  EXPECT_EQ(value("a"), "1");
  EXPECT_EQ(commit({{{key("a"), "1"}, {key("b"), std::nullopt}},
                    {{key("a"), std::nullopt}, {key("b"), "2"}}}),
            Outcome::kApplied);
  EXPECT_EQ(value("a"), std::nullopt);
  EXPECT_EQ(value("b"), "2");
}

TEST_P(Stores, GetIsOfOneRevision) {
  ASSERT_EQ(commit({{}, {{key("b"), "2"}, {key("a"), "1"}}}), Outcome::kApplied);
  const std::vector<std::string> keys{key("b"), key("missing"), key("a")};
  const auto found = store().get(keys, kLimit).value();
  ASSERT_EQ(found.entries.size(), 2U);
  EXPECT_EQ(found.entries[0].key, key("a"));
  EXPECT_EQ(found.entries[0].revision, found.entries[1].revision);
}

TEST_P(Stores, EveryChangeOfRacingClientsIsKept) {
  ASSERT_EQ(put("count", "0"), Outcome::kApplied);
  constexpr int kThreads = 4;
  constexpr int kEach = 20;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      const auto mine = open();
      for (int done = 0; done < kEach;) {
        const auto before = get_one(*mine, key("count"), kLimit).value()->value;
        const auto committed = mine->commit(
            {{{key("count"), before}}, {{key("count"), std::to_string(std::stoi(before) + 1)}}},
            kLimit);
        if (committed.value().outcome == Outcome::kApplied) ++done;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(value("count"), std::to_string(kThreads * kEach));
}

TEST_P(Stores, KeysGoWithTheirLease) {
  const LeaseId lease = store().grant_lease(60s, kLimit).value();
  ASSERT_EQ(put("leased", "1", lease), Outcome::kApplied);
  ASSERT_OK(store().keep_alive(lease, kLimit));
  EXPECT_EQ(value("leased"), "1");
  ASSERT_OK(store().revoke(lease, kLimit));
  EXPECT_EQ(value("leased"), std::nullopt);
  EXPECT_EQ(store().keep_alive(lease, kLimit).error().code(), Code::kNotFound);
  EXPECT_EQ(store().commit({{}, {{key("late"), "1", lease}}}, kLimit).error().code(),
            Code::kNotFound);
  EXPECT_EQ(value("late"), std::nullopt);
  ASSERT_OK(store().revoke(lease, kLimit));  // has ended already
}

TEST_P(Stores, LeaseThatIsNotRenewedEnds) {
  LeaseId lease = kNoLease;
  // On a busy machine a short lease may end before it is used.
  for (bool used = false; !used;) {
    lease = store().grant_lease(2s, kLimit).value();
    const auto committed = store().commit({{}, {{key("leased"), "1", lease}}}, kLimit);
    ASSERT_TRUE(committed || committed.error().code() == Code::kNotFound) << committed.error();
    used = committed.ok();
  }
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (value("leased") && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(value("leased"), std::nullopt);
  EXPECT_EQ(store().keep_alive(lease, kLimit).error().code(), Code::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(File, Stores, ::testing::Values(StoreKind::kFile));
INSTANTIATE_TEST_SUITE_P(Etcd, Stores, ::testing::Values(StoreKind::kEtcd));

class FileStores : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() + "/cluster.json"; }
  std::shared_ptr<MetadataStore> open() {
    VolumeUri uri;
    uri.store = StoreKind::kFile;
    uri.path = path();
    return open_store(uri).value();
  }
  void write(const std::string& text) const {
    std::FILE* const file = std::fopen(path().c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(text.c_str(), file);
    std::fclose(file);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(FileStores, MissingFileIsEmpty) {
  EXPECT_TRUE(open()->range("/", kLimit).value().entries.empty());
}

TEST_F(FileStores, OtherFileIsRefusedAndStays) {
  for (const char* const text :
       {"", "hello", "{\"version\":1}", "[1]",
        "{\"version\":1,\"revision\":-1,\"entries\":{},\"leases\":{}}",
        "{\"version\":1,\"revision\":1e300,\"entries\":{},\"leases\":{}}",
        "{\"version\":1,\"revision\":true,\"entries\":{},\"leases\":{}}",
        "{\"version\":1,\"revision\":1,\"entries\":[],\"leases\":{}}",
        "{\"version\":1,\"revision\":1,\"entries\":{},\"leases\":null}",
        "{\"version\":1,\"revision\":1,\"entries\":{},\"leases\":{\"0\":{\"lifetime_s\":1,"
        "\"ends_ms\":1,\"boot\":\"b\"}}}"}) {
    write(text);
    EXPECT_EQ(open()->range("/", kLimit).error().code(), Code::kProtocol) << text;
    EXPECT_EQ(open()->commit({{}, {{"/a", "1"}}}, kLimit).error().code(), Code::kProtocol) << text;
  }
  write("{\"version\":2}");
  EXPECT_EQ(open()->range("/", kLimit).error().code(), Code::kUnsupported);
}

TEST_F(FileStores, FolderThatIsMissingIsSaid) {
  VolumeUri uri;
  uri.store = StoreKind::kFile;
  uri.path = path() + ".d/cluster.json";
  const auto store = open_store(uri).value();
  EXPECT_EQ(store->commit({{}, {{"/a", "1"}}}, kLimit).error().code(), Code::kNotFound);
}

TEST_F(FileStores, LockThatIsHeldEndsTheCallAtItsLimit) {
  const auto store = open();
  ASSERT_OK(store->commit({{}, {{"/a", "1"}}}, kLimit));
  const int fd = ::open((path() + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_EQ(store->commit({{}, {{"/a", "2"}}}, 20ms).error().code(), Code::kTimedOut);
  EXPECT_EQ(get_one(*store, "/a", kLimit).value()->value, "1");
  ::close(fd);
  ASSERT_OK(store->commit({{}, {{"/a", "2"}}}, kLimit));
}

}  // namespace
}  // namespace remora::volume::test
