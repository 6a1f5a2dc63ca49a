// The server's configuration, from any text: nothing breaks, every fault has its place in the file,
// and what loads is valid and is the same when it is shown and loaded again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <remora/config/describe.h>
#include <remora/config/load.h>

#include "input.h"

namespace remora::fuzz {
namespace {

using config::Diagnostic;
using config::Diagnostics;
using config::ServerConfig;

constexpr const char* kFile = "fuzz.yaml";

/// Variables that the texts may name.
std::optional<std::string> variable(const std::string& name) {
  if (name == "ADDRESS") return "10.0.0.7";
  if (name == "SIZE") return "64MiB";
  if (name == "KEY") return "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f";
  if (name == "EMPTY") return "";
  if (name == "ODD") return "a: [\n\"\t'";
  return std::nullopt;
}

std::size_t lines_of(std::string_view text) {
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) +
         static_cast<std::size_t>(std::count(text.begin(), text.end(), '\r'));
}

void check_place(const Diagnostic& found, std::string_view text) {
  require(found.file == kFile, "a fault names the file");
  require(!found.message.empty(), "a fault says what is wrong");
  require(found.message.find('\n') == std::string::npos, "a fault is one line");
  // A text that is too large, or not UTF-8, or names files of secrets, is refused as a whole.
  require(found.line != 0 || found.column == 0, "a fault without a line has no column");
  // Where something is missing at the end, the place is just behind it.
  require(found.line <= lines_of(text) + 1, "a fault's line is in the file");
  require(found.column <= text.size() + 1, "a fault's column is in the file");
}

bool same(const ServerConfig& a, const ServerConfig& b) {
  return a.listen == b.listen && a.transports == b.transports && a.pool == b.pool &&
         a.regions == b.regions && a.auth == b.auth && a.limits == b.limits && a.log == b.log &&
         a.clients.size() == b.clients.size();
}

void run(std::string_view text) {
  const auto loaded = config::parse_server(text, kFile, variable);
  if (!loaded) {
    require(!loaded.error().empty(), "what does not load has a fault");
    for (const Diagnostic& each : loaded.error()) check_place(each, text);
    require(!loaded.error().to_string().empty(), "faults can be printed");
    return;
  }
  const Diagnostics wrong = config::validate(*loaded);
  if (!wrong.empty()) violated("what loads is valid: " + wrong[0].to_string());
  const std::string shown = config::show(*loaded);
  // Secrets are never printed, so that what has some cannot be read back.
  if (!loaded->clients.empty() || !loaded->metrics.token.empty() ||
      !loaded->metrics.password.empty())
    return;
  const auto again = config::parse_server(shown, kFile, {});
  if (!again) violated("what is shown loads: " + again.error().to_string() + shown);
  if (!same(*loaded, *again)) violated("what is shown is what was loaded:\n" + shown);
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  remora::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
