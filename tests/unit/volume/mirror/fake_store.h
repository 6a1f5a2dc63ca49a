#pragma once

/// A MetadataStore in memory, whose answers a test can lose.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <remora/volume/metadata_store.h>

namespace remora::volume::test {

/// What happens to the next transaction.
enum class StoreFault : std::uint8_t {
  kNone,
  kAnswerLost,   ///< it applies, and its writer does not learn that
  kLate,         ///< it applies when apply_late() is called, if its conditions hold then
  kLateAndDown,  ///< as kLate, and the store is down from then on
  kNotSent       ///< an error: it never applies
};

class FakeStore final : public MetadataStore {
 public:
  Result<Snapshot> get(std::span<const std::string> keys,
                       std::chrono::nanoseconds /*limit*/) override {
    const std::lock_guard lock{mutex_};
    ++reads_;
    if (down_) return Error{Code::kUnreachable, "etcd"};
    Snapshot snapshot;
    snapshot.revision = revision_;
    for (const auto& [key, value] : values_)
      for (const std::string& wanted : keys)
        if (key == wanted) snapshot.entries.push_back({key, value, revision_});
    return snapshot;
  }
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds /*limit*/) override {
    const std::lock_guard lock{mutex_};
    if (down_) return Error{Code::kUnreachable, "etcd"};
    Snapshot snapshot;
    snapshot.revision = revision_;
    for (const auto& [key, value] : values_)
      if (std::string_view{key}.starts_with(prefix))
        snapshot.entries.push_back({key, value, revision_});
    return snapshot;
  }
  Result<Committed> commit(const Transaction& transaction,
                           std::chrono::nanoseconds /*limit*/) override {
    const Result<Committed> done = commit_now(transaction);
    if (before_answer) before_answer();
    return done;
  }
  Result<LeaseId> grant_lease(std::chrono::seconds /*lifetime*/,
                              std::chrono::nanoseconds /*limit*/) override {
    const std::lock_guard lock{mutex_};
    if (down_) return Error{Code::kUnreachable, "etcd"};
    return ++last_lease_;
  }
  Status keep_alive(LeaseId lease, std::chrono::nanoseconds /*limit*/) override {
    const std::lock_guard lock{mutex_};
    if (down_) return Error{Code::kUnreachable, "etcd"};
    if (lease <= lapsed_) return Error{Code::kNotFound, "lease"};
    ++renewals_;
    renewed_ = lease;
    return {};
  }
  Status revoke(LeaseId /*lease*/, std::chrono::nanoseconds /*limit*/) override { return {}; }
  [[nodiscard]] std::string name() const override { return "a store in memory"; }

  // For the test.
  void fail_next(StoreFault fault) {
    const std::lock_guard lock{mutex_};
    fault_ = fault;
  }
  void set_down(bool down) {
    const std::lock_guard lock{mutex_};
    down_ = down;
  }
  /// Whether the transaction that was late has applied now.
  bool apply_late() {
    const std::lock_guard lock{mutex_};
    return late_ && apply(*std::exchange(late_, std::nullopt));
  }
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock{mutex_};
    values_[key] = value;
  }
  void erase(const std::string& key) {
    const std::lock_guard lock{mutex_};
    values_.erase(key);
  }
  /// All leases end, and with them their keys.
  void lapse() {
    const std::lock_guard lock{mutex_};
    lapsed_ = last_lease_;
    for (const auto& [key, lease] : leases_) values_.erase(key);
    leases_.clear();
  }
  /// The lease of a key; kNoLease: it has none.
  [[nodiscard]] LeaseId lease_of(const std::string& key) {
    const std::lock_guard lock{mutex_};
    const auto found = leases_.find(key);
    return found == leases_.end() ? kNoLease : found->second;
  }
  /// The lease that was renewed last, and how many renewals there were.
  [[nodiscard]] LeaseId renewed() {
    const std::lock_guard lock{mutex_};
    return renewed_;
  }
  [[nodiscard]] int renewals() {
    const std::lock_guard lock{mutex_};
    return renewals_;
  }
  [[nodiscard]] std::string value(const std::string& key) {
    const std::lock_guard lock{mutex_};
    const auto found = values_.find(key);
    return found == values_.end() ? std::string{} : found->second;
  }
  [[nodiscard]] int reads() {
    const std::lock_guard lock{mutex_};
    return reads_;
  }
  [[nodiscard]] int commits() {
    const std::lock_guard lock{mutex_};
    return commits_;
  }

  /// Called after each transaction, before its writer has the answer. Set while no thread works.
  std::function<void()> before_answer{};

 private:
  Result<Committed> commit_now(const Transaction& transaction) {
    const std::lock_guard lock{mutex_};
    ++commits_;
    if (down_) return Error{Code::kUnreachable, "etcd"};
    const StoreFault fault = std::exchange(fault_, StoreFault::kNone);
    if (fault == StoreFault::kNotSent) return Error{Code::kUnreachable, "etcd"};
    if (fault == StoreFault::kLate || fault == StoreFault::kLateAndDown) {
      late_ = transaction;
      down_ = fault == StoreFault::kLateAndDown;
      return unknown();
    }
    for (const Change& change : transaction.changes)
      if (change.lease != kNoLease && change.lease <= lapsed_)
        return Error{Code::kNotFound, "lease"};
    const bool applied = apply(transaction);
    if (fault == StoreFault::kAnswerLost) return unknown();
    return Committed{applied ? Outcome::kApplied : Outcome::kRefused, revision_, std::nullopt};
  }
  [[nodiscard]] static Committed unknown() {
    return {Outcome::kUnknown, 0, Error{Code::kTimedOut, "etcd"}};
  }
  bool apply(const Transaction& transaction) {
    for (const Change& change : transaction.changes)
      if (change.lease != kNoLease && change.lease <= lapsed_) return false;
    for (const Compare& compare : transaction.compares) {
      const auto found = values_.find(compare.key);
      if (compare.value ? found == values_.end() || found->second != *compare.value
                        : found != values_.end())
        return false;
    }
    ++revision_;
    for (const Change& change : transaction.changes) {
      leases_.erase(change.key);
      if (change.value)
        values_[change.key] = *change.value;
      else
        values_.erase(change.key);
      if (change.lease != kNoLease) leases_[change.key] = change.lease;
    }
    return true;
  }

  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::optional<Transaction> late_;
  StoreFault fault_ = StoreFault::kNone;
  bool down_ = false;
  std::uint64_t revision_ = 1;
  LeaseId last_lease_ = 0;
  LeaseId lapsed_ = 0;
  std::map<std::string, LeaseId> leases_;
  LeaseId renewed_ = kNoLease;
  int renewals_ = 0;
  int reads_ = 0;
  int commits_ = 0;
};

}  // namespace remora::volume::test
