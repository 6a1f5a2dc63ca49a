#include "etcd_store.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "base64.h"

namespace remora::volume {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPageEntries = 1000;

Error no_etcd() {
  return Error{Code::kProtocol, "etcd"}.with_subject("an answer that is not etcd's");
}

/// etcd writes 64-bit numbers as text, and leaves out members that are 0.
std::uint64_t number_in(const Json& json, const char* member) {
  const auto found = json.find(member);
  if (found == json.end()) return 0;
  if (found->is_number_unsigned()) return found->get<std::uint64_t>();
  std::uint64_t number = 0;
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

std::uint64_t signed_in(const Json& json, const char* member) {
  const auto found = json.find(member);
  if (found == json.end()) return 0;
  std::int64_t number = 0;
  if (found->is_number_integer()) return std::uint64_t(found->get<std::int64_t>());
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return std::uint64_t(number);
}

std::uint64_t revision_of(const Json& answer) {
  const auto header = answer.find("header");
  return header != answer.end() && header->is_object() ? number_in(*header, "revision") : 0;
}

/// Appends the entries of an answer to a range; false: it is none.
bool append_entries(const Json& range, std::vector<Entry>& entries) {
  const auto list = range.find("kvs");
  if (list == range.end()) return true;
  if (!list->is_array()) return false;
  for (const Json& each : *list) {
    const auto key = each.is_object() ? each.find("key") : each.end();
    if (!each.is_object() || key == each.end() || !key->is_string()) return false;
    auto plain_key = from_base64(key->get_ref<const std::string&>());
    const auto value = each.find("value");  // an empty one is left out
    auto plain_value = value != each.end() && value->is_string()
                           ? from_base64(value->get_ref<const std::string&>())
                           : std::string{};
    if (!plain_key || !plain_value) return false;
    entries.push_back(
        {std::move(*plain_key), std::move(*plain_value), number_in(each, "mod_revision")});
  }
  return true;
}

/// The end of the range of all keys that begin with `prefix`.
std::string end_of(std::string_view prefix) {
  std::string end{prefix};
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return std::string(1, '\0');
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

Json compare_of(const Compare& compare) {
  Json json{{"key", to_base64(compare.key)}, {"result", "EQUAL"}};
  if (compare.value) {
    json["target"] = "VALUE";
    json["value"] = to_base64(*compare.value);
  } else {
    json["target"] = "VERSION";  // 0: there is no such key
    json["version"] = "0";
  }
  return json;
}

Json change_of(const Change& change) {
  Json inner{{"key", to_base64(change.key)}};
  if (!change.value) return {{"request_delete_range", inner}};
  inner["value"] = to_base64(*change.value);
  if (change.lease != kNoLease) inner["lease"] = std::to_string(std::int64_t(change.lease));
  return {{"request_put", inner}};
}

Error too_many(std::size_t asked) {
  return Error{Code::kLimitExceeded, "transaction of a cluster"}.with_limit(asked, kTransactionMax);
}

std::string lease_text(LeaseId lease) { return std::to_string(std::int64_t(lease)); }

}  // namespace

std::string EtcdStore::name() const {
  std::string text = "etcd ";
  for (const std::string& endpoint : gateway_.endpoints())
    text.append(text.ends_with(' ') ? "" : ",").append(endpoint);
  return text;
}

Result<Snapshot> EtcdStore::get(std::span<const std::string> keys, std::chrono::nanoseconds limit) {
  if (keys.size() > kTransactionMax) return too_many(keys.size());
  // One transaction without conditions: all keys at one revision, linearizable.
  Json request{{"compare", Json::array()}, {"success", Json::array()}};
  for (const std::string& key : keys)
    request["success"].push_back({{"request_range", {{"key", to_base64(key)}}}});
  auto answer = gateway_.call("/v3/kv/txn", request, Repeat::kAllowed, limit);
  if (!answer) return answer.error();
  const Json& json = answer->json;
  Snapshot snapshot{revision_of(json), {}};
  const auto responses = json.find("responses");
  if (snapshot.revision == 0 ||
      (!keys.empty() &&
       (responses == json.end() || !responses->is_array() || responses->size() != keys.size())))
    return no_etcd();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Json& each = (*responses)[i];
    const auto range = each.is_object() ? each.find("response_range") : each.end();
    if (!each.is_object() || range == each.end() || !range->is_object() ||
        !append_entries(*range, snapshot.entries))
      return no_etcd();
  }
  std::sort(snapshot.entries.begin(), snapshot.entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  return snapshot;
}

Result<Snapshot> EtcdStore::range(std::string_view prefix, std::chrono::nanoseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  const std::string end = end_of(prefix);
  Snapshot snapshot;
  for (std::string from{prefix};;) {
    Json request{{"key", to_base64(from)},
                 {"range_end", to_base64(end)},
                 {"limit", std::to_string(kPageEntries)},
                 {"sort_order", "ASCEND"},
                 {"sort_target", "KEY"}};
    // The first page is linearizable; the others are of its revision.
    if (snapshot.revision != 0) request["revision"] = std::to_string(snapshot.revision);
    auto answer = gateway_.call("/v3/kv/range", request, Repeat::kAllowed, until - Clock::now());
    if (!answer && answer.error().code() == Code::kOutOfRange && snapshot.revision != 0) {
      // Compacted between two pages: all again, of a later revision.
      snapshot = {};
      from = prefix;
      continue;
    }
    if (!answer) return answer.error();
    if (snapshot.revision == 0) snapshot.revision = revision_of(answer->json);
    const std::size_t before = snapshot.entries.size();
    if (snapshot.revision == 0 || !append_entries(answer->json, snapshot.entries)) return no_etcd();
    const auto more = answer->json.find("more");
    if (more == answer->json.end() || !more->is_boolean() || !more->get<bool>()) return snapshot;
    if (snapshot.entries.size() == before) return no_etcd();
    from = snapshot.entries.back().key + '\0';
  }
}

Result<Committed> EtcdStore::commit(const Transaction& transaction,
                                    std::chrono::nanoseconds limit) {
  const std::size_t count = std::max(transaction.compares.size(), transaction.changes.size());
  if (count > kTransactionMax) return too_many(count);
  Json request{{"compare", Json::array()}, {"success", Json::array()}};
  for (const Compare& compare : transaction.compares)
    request["compare"].push_back(compare_of(compare));
  for (const Change& change : transaction.changes) request["success"].push_back(change_of(change));
  auto answer = gateway_.call("/v3/kv/txn", request, Repeat::kNever, limit);
  if (!answer) return answer.error();
  if (answer->unknown) return Committed{Outcome::kUnknown, 0, answer->unknown};
  const auto succeeded = answer->json.find("succeeded");  // left out if false
  const bool applied =
      succeeded != answer->json.end() && succeeded->is_boolean() && succeeded->get<bool>();
  const std::uint64_t revision = revision_of(answer->json);
  if (revision == 0) return Committed{Outcome::kUnknown, 0, no_etcd()};
  return Committed{applied ? Outcome::kApplied : Outcome::kRefused, revision, {}};
}

Result<LeaseId> EtcdStore::grant_lease(std::chrono::seconds lifetime,
                                       std::chrono::nanoseconds limit) {
  // A lease that was granted without an answer ends by itself.
  auto answer = gateway_.call("/v3/lease/grant", {{"TTL", std::to_string(lifetime.count())}},
                              Repeat::kAllowed, limit);
  if (!answer) return answer.error();
  const LeaseId lease = signed_in(answer->json, "ID");
  if (lease == kNoLease) return no_etcd();
  return lease;
}

Status EtcdStore::keep_alive(LeaseId lease, std::chrono::nanoseconds limit) {
  // One request for each renewal: of several on one stream, the gateway sends only the first.
  auto answer =
      gateway_.call("/v3/lease/keepalive", {{"ID", lease_text(lease)}}, Repeat::kAllowed, limit);
  if (!answer) return answer.error();
  const auto result = answer->json.find("result");
  if (result == answer->json.end() || !result->is_object()) return no_etcd();
  if (signed_in(*result, "TTL") == 0)
    return Error{Code::kNotFound, "lease of a cluster"}.with_subject(name());
  return ok_status();
}

Status EtcdStore::revoke(LeaseId lease, std::chrono::nanoseconds limit) {
  auto answer =
      gateway_.call("/v3/lease/revoke", {{"ID", lease_text(lease)}}, Repeat::kAllowed, limit);
  if (!answer && answer.error().code() != Code::kNotFound) return answer.error();
  return ok_status();
}

}  // namespace remora::volume
