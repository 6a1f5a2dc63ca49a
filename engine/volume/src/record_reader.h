#pragma once

/// Reads the members of a record.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::volume {

/// Each function reads one member into its last argument, and checks it. The first fault is kept,
/// and the functions after it do nothing. One thread.
class RecordReader {
 public:
  /// `key` is the subject of errors. Errors: kProtocol (no JSON object), kUnsupported (its
  /// version).
  static Result<RecordReader> parse(std::string_view key, std::string_view json);

  /// A name of a server, volume or region.
  void name(const char* member, std::string& value);
  /// Any text of at most 256 bytes.
  void text(const char* member, std::string& value);
  /// 1 to 16 texts that are not empty.
  void texts(const char* member, std::vector<std::string>& values);
  /// 16 hexadecimal digits.
  void id(const char* member, std::uint64_t& value);
  void number(const char* member, std::uint64_t min, std::uint64_t max, std::uint64_t& value);
  void flag(const char* member, bool& value);
  /// The index of the member's text in `texts`.
  template <typename Enum, typename Texts>
  void choice(const char* member, const Texts& choices, Enum& value) {
    value = static_cast<Enum>(index_of(member, choices));
  }
  /// `read` reads one object of the list; false: it has a fault.
  void objects(const char* member, std::size_t max, const std::function<bool(RecordReader&)>& read);

  [[nodiscard]] bool good() const noexcept { return !error_; }
  /// Only when !good().
  [[nodiscard]] const Error& error() const noexcept { return *error_; }
  /// The error of a member that breaks a rule.
  [[nodiscard]] Error wrong(std::string_view member) const;

 private:
  RecordReader(std::string_view key, nlohmann::json json);
  /// Null: there is a fault already, or the member is missing, which is one.
  const nlohmann::json* find(const char* member);
  void fail(std::string_view member);
  std::size_t index_of(const char* member, std::span<const char* const> choices);

  std::string key_;
  nlohmann::json json_;
  std::optional<Error> error_{};
};

/// 16 digits.
[[nodiscard]] std::string hexadecimal(std::uint64_t number);
/// Of exactly 16 digits.
[[nodiscard]] std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) noexcept;

}  // namespace remora::volume
