#pragma once

// What the tests of this folder share: a file of a few lines in, its printed faults out.

#include <gtest/gtest.h>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <remora/config/load.h>

namespace remora::config::testing {

/// Variables that exist while a test's text is parsed; the process environment is not looked at.
using Variables = std::map<std::string, std::string>;

inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline tl::expected<ServerConfig, Diagnostics> parse(std::string_view text,
                                                     Variables variables = {}) {
  return parse_server(text, "f.yaml", environment_of(std::move(variables)));
}

/// The faults of `text` as they are printed, or "no fault".
inline std::string faults(std::string_view text, Variables variables = {}) {
  const auto config = parse(text, std::move(variables));
  return config ? "no fault" : config.error().to_string();
}

/// A valid file of one line, so that a fault under test is the only one. Tests add lines below it.
inline std::string with_pool(std::string_view rest) {
  return "pool: {size: 1MiB}\n" + std::string{rest};
}

/// Keys that parse; no two are alike.
inline constexpr const char* kKeyA =
    "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f";
inline constexpr const char* kKeyB =
    "A0112233445566778899AABBCCDDEEFF102132435465768798A9BACBDCEDFE0F";

/// Parses or fails the test; for values.
inline ServerConfig parsed(std::string_view text, Variables variables = {}) {
  const auto config = parse(text, std::move(variables));
  if (config) return *config;
  ADD_FAILURE() << config.error().to_string();
  return {};
}

}  // namespace remora::config::testing
