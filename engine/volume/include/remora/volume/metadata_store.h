#pragma once

/// A consistent store of small values: etcd, or a file on one host.
///
/// Correctness rests on get(), range() and commit() alone. All three are linearizable: a call sees
/// everything that was committed before it began. There are no watches.
///
/// Every call has a time limit, and ends within it plus one second. Errors of all functions:
/// kTimedOut; kUnreachable (no endpoint answers); kPermissionDenied (certificate, user, password,
/// file mode); kProtocol (the answer is none of such a store); kUnsupported (its version).
///
/// Thread safety: any thread may call any function at any time.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::volume {

/// A key with its value.
struct Entry {
  std::string key{};
  std::string value{};
  std::uint64_t revision = 0;  ///< of the store, at the last change of this key
};

/// The entries that one read found, all of the same revision of the store.
struct Snapshot {
  std::uint64_t revision = 0;
  std::vector<Entry> entries{};  ///< sorted by key; a key that does not exist is missing

  [[nodiscard]] const Entry* find(std::string_view key) const noexcept;
};

/// A condition of a transaction.
struct Compare {
  std::string key{};
  std::optional<std::string> value{};  ///< empty: the key does not exist
};

using LeaseId = std::uint64_t;
inline constexpr LeaseId kNoLease = 0;

/// A change of a transaction.
struct Change {
  std::string key{};
  std::optional<std::string> value{};  ///< empty: removes the key
  LeaseId lease = kNoLease;            ///< the key goes when the lease ends
};

/// The most compares, and the most changes, of one transaction (etcd: --max-txn-ops).
inline constexpr std::size_t kTransactionMax = 120;

/// Changes that apply together, if all compares hold; each list has at most kTransactionMax.
struct Transaction {
  std::vector<Compare> compares{};
  std::vector<Change> changes{};
};

/// What has become of a transaction that was sent.
enum class Outcome : std::uint8_t {
  kApplied,
  kRefused,  ///< a condition did not hold; nothing has changed
  kUnknown   ///< it was sent and no answer came: applied, not applied, or applied later
};

/// The answer to a transaction that was sent.
struct Committed {
  Outcome outcome = Outcome::kUnknown;
  std::uint64_t revision = 0;    ///< of the store; 0 if unknown
  std::optional<Error> cause{};  ///< of kUnknown
};

/// A store: see the top of this file for limits, errors and thread safety.
class MetadataStore {
 public:
  virtual ~MetadataStore() = default;
  MetadataStore(const MetadataStore&) = delete;
  MetadataStore& operator=(const MetadataStore&) = delete;

  /// The entries of these keys, in one read; at most kTransactionMax.
  virtual Result<Snapshot> get(std::span<const std::string> keys,
                               std::chrono::nanoseconds limit) = 0;
  /// All entries whose key begins with `prefix` (not empty).
  virtual Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) = 0;
  /// Applies all changes if all conditions hold. An Error: the transaction was not sent, or was
  /// refused as a whole, and can never apply. Errors beside the above: kLimitExceeded; kNotFound
  /// (a lease that has ended).
  virtual Result<Committed> commit(const Transaction& transaction,
                                   std::chrono::nanoseconds limit) = 0;

  /// A lease of whole seconds, at least 2.
  virtual Result<LeaseId> grant_lease(std::chrono::seconds lifetime,
                                      std::chrono::nanoseconds limit) = 0;
  /// Renews it for its lifetime. Errors beside the above: kNotFound (it has ended).
  virtual Status keep_alive(LeaseId lease, std::chrono::nanoseconds limit) = 0;
  /// Ends it with all its keys. One that has ended already is no error.
  virtual Status revoke(LeaseId lease, std::chrono::nanoseconds limit) = 0;

  /// For messages: "etcd http://127.0.0.1:2379", "file /var/lib/remora/cluster.json".
  [[nodiscard]] virtual std::string name() const = 0;

 protected:
  MetadataStore() = default;
};

/// get() of one key.
Result<std::optional<Entry>> get_one(MetadataStore& store, const std::string& key,
                                     std::chrono::nanoseconds limit);

}  // namespace remora::volume
