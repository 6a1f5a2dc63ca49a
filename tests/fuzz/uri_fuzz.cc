// What people type: names of servers, regions, clusters and volumes, endpoints, sizes, durations,
// numbers, keys. What is taken is taken again from its own text; what is refused says why.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <remora/config/secret_key.h>
#include <remora/config/server_config.h>
#include <remora/config/units.h>
#include <remora/engine/uri.h>
#include <remora/volume/remedy.h>
#include <remora/volume/uri.h>

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

void volume_uri(std::string_view text) {
  const auto parsed = volume::parse_uri(text);
  if (!parsed) {
    require(parsed.error().code() == Code::kInvalidArgument ||
                parsed.error().code() == Code::kLimitExceeded,
            "a refusal is one of the listed errors");
    require(!volume::remedy(parsed.error()).empty(), "a refusal says what is right");
    return;
  }
  require(volume::is_volume_uri(text), "a URI of a cluster begins as one");
  require(config::is_region_name(parsed->cluster), "a URI names a cluster");
  require(parsed->volume.empty() || config::is_region_name(parsed->volume),
          "a URI's volume has a name");
  const bool in_file = parsed->store == volume::StoreKind::kFile;
  require(parsed->endpoints.empty() == in_file && parsed->path.starts_with('/') == in_file,
          "a cluster is in a file or behind endpoints");
  require(parsed->endpoints.size() <= volume::kEndpointsMax, "a cluster has so many endpoints");
  const auto again = volume::parse_uri(parsed->text());
  if (!again) violated("a URI's own text is one: " + parsed->text());
  require(*again == *parsed, "a URI's own text means the same");
  require(volume::parse_volume_uri(text).ok() != parsed->volume.empty(),
          "a URI of a volume names it");
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
  remora::fuzz::volume_uri(text);
  remora::fuzz::endpoint(text);
  remora::fuzz::units(text);
  remora::fuzz::key(text);
  (void)remora::config::is_loopback(text);
  return 0;
}
