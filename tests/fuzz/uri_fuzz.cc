// What people type: names of servers and regions, endpoints, sizes, durations, numbers, keys. What
// is taken is taken again from its own text; what is refused says why.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <remora/config/secret_key.h>
#include <remora/config/server_config.h>
#include <remora/config/units.h>
#include <remora/engine/uri.h>

#include "input.h"

namespace remora::fuzz {
namespace {

void refused(const Error& error) {
  require(!error.message().empty(), "a refusal can be printed");
  require(error.code() == Code::kInvalidArgument || error.code() == Code::kOutOfRange ||
              error.code() == Code::kUnsupported,
          "a refusal is one of the listed errors");
}

void uri(std::string_view text) {
  const auto parsed = Uri::parse(text);
  if (!parsed) return refused(parsed.error());
  require(!parsed->host.empty() && parsed->port != 0, "a URI names a host and a port");
  require(parsed->region.empty() || config::is_region_name(parsed->region),
          "a URI's region is a region name");
  require(!parsed->payload_crc || parsed->transport == TransportKind::kTcp,
          "payload checksums are tcp's");
  const auto again = Uri::parse(parsed->text());
  if (!again) violated("a URI's own text is one: " + parsed->text());
  require(again->host == parsed->host && again->port == parsed->port &&
              again->region == parsed->region && again->transport == parsed->transport &&
              again->payload_crc == parsed->payload_crc,
          "a URI's own text means the same");
}

void endpoint(std::string_view text) {
  const auto parsed = config::parse_endpoint(text);
  if (!parsed) return refused(parsed.error());
  require(!parsed->address.empty() && parsed->port != 0, "an endpoint has an address and a port");
}

void units(std::string_view text) {
  const auto size = config::parse_size(text);
  require(size.ok() == config::explain_size(text).empty(), "what is no size is explained");
  if (size)
    require(config::parse_size(config::format_size(*size)).value() == *size,
            "sizes survive printing");
  else
    refused(size.error());
  const auto duration = config::parse_duration(text);
  require(duration.ok() == config::explain_duration(text).empty(),
          "what is no duration is explained");
  if (duration)
    require(config::parse_duration(config::format_duration(*duration)).value() == *duration,
            "durations survive printing");
  else
    refused(duration.error());
  const auto number = config::parse_number(text);
  require(number.ok() == config::explain_number(text).empty(), "what is no number is explained");
  if (number)
    require(config::parse_number(std::to_string(*number)).value() == *number,
            "numbers survive printing");
  else
    refused(number.error());
}

void key(std::string_view text) {
  const auto parsed = config::SecretKey::parse(text);
  if (!parsed) return refused(parsed.error());
  require(config::SecretKey::parse(parsed->to_hex()).value() == *parsed, "keys survive printing");
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  remora::fuzz::uri(text);
  remora::fuzz::endpoint(text);
  remora::fuzz::units(text);
  remora::fuzz::key(text);
  (void)remora::config::is_loopback(text);
  return 0;
}
