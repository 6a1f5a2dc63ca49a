#pragma once

/// The functions that make an entry of the table of keys, from the key's path, type, range and
/// field.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <remora/config/secret_key.h>

#include "keys.h"

namespace remora::config::key_builders {

// Sizes in bytes, and durations in nanoseconds.
constexpr std::uint64_t kKiB = 1ULL << 10U;
constexpr std::uint64_t kMiB = 1ULL << 20U;
constexpr std::uint64_t kGiB = 1ULL << 30U;
constexpr std::uint64_t kTiB = 1ULL << 40U;
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMillisecond;
constexpr std::uint64_t kMinute = 60'000 * kMillisecond;
constexpr std::uint64_t kHour = 60 * kMinute;

/// The functions by which a key reaches its field.
struct Access {
  void (*write)(ServerConfig&, At, const Value&);
  std::optional<Value> (*read)(const ServerConfig&, At);
};

// Made in place: GCC 12 takes the move of a temporary Value for a use of an unset variable.
template <typename T, typename Source>
std::optional<Value> holding(Source&& source) {
  return std::optional<Value>{std::in_place, std::in_place_type<T>, std::forward<Source>(source)};
}

/// Each takes a stateless lambda from (config, region) to a reference to the field.
template <typename Field>
constexpr Access boolean(Field /*field*/) {
  return {[](ServerConfig& c, At r, const Value& v) { Field{}(c, r) = std::get<bool>(v); },
          [](const ServerConfig& c, At r) -> std::optional<Value> {
            return holding<bool>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access number(Field /*field*/) {
  return {[](ServerConfig& c, At r, const Value& v) {
            auto& field = Field{}(c, r);
            field =
                static_cast<std::remove_reference_t<decltype(field)>>(std::get<std::uint64_t>(v));
          },
          [](const ServerConfig& c, At r) -> std::optional<Value> {
            return holding<std::uint64_t>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access duration(Field /*field*/) {
  return {[](ServerConfig& c, At r, const Value& v) {
            Field{}(c, r) = std::get<std::chrono::nanoseconds>(v);
          },
          [](const ServerConfig& c, At r) -> std::optional<Value> {
            return holding<std::chrono::nanoseconds>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access text(Field /*field*/) {
  return {[](ServerConfig& c, At r, const Value& v) { Field{}(c, r) = std::get<std::string>(v); },
          [](const ServerConfig& c, At r) -> std::optional<Value> {
            return holding<std::string>(Field{}(c, r));
          }};
}

/// An enumeration whose to_string() gives the words; `find` turns a word back.
template <typename Enum, typename Field>
constexpr Access choice(Field /*field*/) {
  return {[](ServerConfig& c, At r, const Value& v) {
            const auto& word = std::get<std::string>(v);
            for (std::uint8_t i = 0; i < std::numeric_limits<std::uint8_t>::max(); ++i)
              if (to_string(static_cast<Enum>(i)) == word) {
                Field{}(c, r) = static_cast<Enum>(i);
                return;
              }
          },
          [](const ServerConfig& c, At r) -> std::optional<Value> {
            return holding<std::string>(to_string(Field{}(c, r)));
          }};
}

/// A key that has been checked; the text is not kept.
template <typename Field>
constexpr Access secret_key(Field /*field*/) {
  return {[](ServerConfig& c, At at, const Value& v) {
            if (auto key = SecretKey::parse(std::get<std::string>(v))) Field{}(c, at) = *key;
          },
          [](const ServerConfig& c, At at) -> std::optional<Value> {
            if (!Field{}(c, at)) return std::nullopt;
            return holding<std::string>("");
          }};
}

/// Not set if the field is 0.
template <typename Field>
constexpr Access optional_number(Field field) {
  Access access = number(field);
  access.read = [](const ServerConfig& c, At at) -> std::optional<Value> {
    if (Field{}(c, at) == 0) return std::nullopt;
    return holding<std::uint64_t>(Field{}(c, at));
  };
  return access;
}

/// Not set if the field is empty; every number has a meaning.
template <typename Field>
constexpr Access settable_number(Field /*field*/) {
  return {[](ServerConfig& c, At at, const Value& v) {
            auto& field = Field{}(c, at);
            using Number = typename std::remove_reference_t<decltype(field)>::value_type;
            field = static_cast<Number>(std::get<std::uint64_t>(v));
          },
          [](const ServerConfig& c, At at) -> std::optional<Value> {
            if (!Field{}(c, at)) return std::nullopt;
            return holding<std::uint64_t>(*Field{}(c, at));
          }};
}

/// Not set if the field is empty.
template <typename Field>
constexpr Access optional_text(Field field) {
  Access access = text(field);
  access.read = [](const ServerConfig& c, At r) -> std::optional<Value> {
    if (Field{}(c, r).empty()) return std::nullopt;
    return holding<std::string>(Field{}(c, r));
  };
  return access;
}

/// The entry of a map or list itself.
constexpr Key group(std::string_view path, KeyType type, std::string_view help,
                    std::uint64_t max = 0) {
  Key key;
  key.path = path;
  key.type = type;
  key.max = max;
  key.help = help;
  return key;
}

constexpr Key ranged(std::string_view path, KeyType type, std::uint64_t min, std::uint64_t max,
                     Access access, std::string_view help) {
  Key key = group(path, type, help, max);
  key.min = min;
  key.write = access.write;
  key.read = access.read;
  return key;
}

constexpr Key worded(std::string_view path, KeyType type, std::span<const std::string_view> words,
                     Access access, std::string_view help) {
  Key key = ranged(path, type, 0, 0, access, help);
  key.words = words;
  return key;
}

constexpr Key free_text(std::string_view path, std::string_view accepts,
                        bool (*check)(std::string_view), Access access, std::string_view help) {
  Key key = ranged(path, KeyType::kText, 0, 0, access, help);
  key.accepts = accepts;
  key.check = check;
  return key;
}

/// One name or a list of names; `single_only` are words that are not allowed in a list.
constexpr Key names(std::string_view path, std::string_view accepts,
                    bool (*check)(std::string_view), std::span<const std::string_view> single_only,
                    std::uint64_t max, Access access, std::string_view help) {
  Key key = free_text(path, accepts, check, access, help);
  key.type = KeyType::kNames;
  key.words = single_only;
  key.min = 1;
  key.max = max;
  return key;
}

constexpr Key secret(Key key) {
  key.secret = true;
  return key;
}

constexpr Key discreet(Key key) {
  key.discreet = true;
  return key;
}

constexpr Key typed(Key key) {
  key.typed = true;
  return key;
}

/// A list of maps, which are elements of a vector of the struct.
template <typename Field>
constexpr Key list(std::string_view path, Field /*field*/, std::uint64_t min, std::uint64_t max,
                   std::string_view help) {
  Key key = group(path, KeyType::kList, help, max);
  key.min = min;
  key.resize = [](ServerConfig& c, At at, std::size_t count) { Field{}(c, at).resize(count); };
  key.count = [](const ServerConfig& c, At at) { return Field{}(c, at).size(); };
  return key;
}

constexpr Key required(Key key) {
  key.required = true;
  return key;
}

}  // namespace remora::config::key_builders
