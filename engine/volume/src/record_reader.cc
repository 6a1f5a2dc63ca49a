#include "record_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <remora/config/server_config.h>
#include <remora/volume/records.h>

namespace remora::volume {
namespace {

constexpr std::size_t kTextBytesMax = 256;
constexpr std::size_t kTextsMax = 16;
constexpr std::size_t kIdDigits = 16;

}  // namespace

std::string hexadecimal(std::uint64_t number) {
  std::string text(kIdDigits, '0');
  for (std::size_t i = kIdDigits; i-- > 0; number >>= 4U)
    text[i] = "0123456789abcdef"[number & 0xfU];
  return text;
}

std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != kIdDigits || fault != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

RecordReader::RecordReader(std::string_view key, nlohmann::json json)
    : key_{key}, json_(std::move(json)) {}

Result<RecordReader> RecordReader::parse(std::string_view key, std::string_view json) {
  RecordReader reader{key, nlohmann::json::parse(json, nullptr, false)};
  if (!reader.json_.is_object()) return reader.wrong("JSON object");
  const auto version = reader.json_.find("version");
  if (version == reader.json_.end() || !version->is_number_unsigned())
    return reader.wrong("version");
  if (const auto number = version->get<std::uint64_t>(); number != kRecordVersion)
    return Error{Code::kUnsupported, "version of a cluster's record"}.with_subject(key).with_limit(
        number, kRecordVersion);
  return reader;
}

Error RecordReader::wrong(std::string_view member) const {
  return Error{Code::kProtocol, "record of a cluster"}.with_subject(key_ + ": " +
                                                                    std::string{member});
}

void RecordReader::fail(std::string_view member) {
  if (!error_) error_ = wrong(member);
}

const nlohmann::json* RecordReader::find(const char* member) {
  if (error_) return nullptr;
  const auto found = json_.find(member);
  if (found != json_.end()) return &*found;
  fail(member);
  return nullptr;
}

void RecordReader::name(const char* member, std::string& value) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (found->is_string()) value = found->get<std::string>();
  if (!config::is_region_name(value)) fail(member);
}

void RecordReader::text(const char* member, std::string& value) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_string()) return fail(member);
  value = found->get<std::string>();
  if (value.size() > kTextBytesMax) fail(member);
}

void RecordReader::texts(const char* member, std::vector<std::string>& values) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_array() || found->empty() || found->size() > kTextsMax) return fail(member);
  for (const nlohmann::json& each : *found) {
    if (!each.is_string()) return fail(member);
    values.push_back(each.get<std::string>());
    if (values.back().empty() || values.back().size() > kTextBytesMax) return fail(member);
  }
}

void RecordReader::id(const char* member, std::uint64_t& value) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_string()) return fail(member);
  const auto number = parse_hexadecimal(found->get_ref<const std::string&>());
  if (!number) return fail(member);
  value = *number;
}

void RecordReader::number(const char* member, std::uint64_t min, std::uint64_t max,
                          std::uint64_t& value) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_number_unsigned()) return fail(member);
  value = found->get<std::uint64_t>();
  if (value < min || value > max) fail(member);
}

void RecordReader::flag(const char* member, bool& value) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_boolean()) return fail(member);
  value = found->get<bool>();
}

std::size_t RecordReader::index_of(const char* member, std::span<const char* const> choices) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return 0;
  if (found->is_string())
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (found->get_ref<const std::string&>() == choices[i]) return i;
  fail(member);
  return 0;
}

void RecordReader::objects(const char* member, std::size_t max,
                           const std::function<bool(RecordReader&)>& read) {
  const nlohmann::json* const found = find(member);
  if (found == nullptr) return;
  if (!found->is_array() || found->size() > max) return fail(member);
  for (const nlohmann::json& each : *found) {
    if (!each.is_object()) return fail(member);
    RecordReader reader{key_ + ": " + member, each};
    if (read(reader)) continue;
    error_ = reader.error();
    return;
  }
}

}  // namespace remora::volume
