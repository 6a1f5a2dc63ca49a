#include <algorithm>
#include <cctype>
#include <charconv>
#include <strings.h>
#include <utility>

#include <remora/config/server_config.h>
#include <remora/engine/uri.h>
#include <remora/host_port.h>

#include "transport/rail_choice.h"

namespace remora {

std::string to_string(Rights rights) {
  std::string text;
  const auto add = [&](Rights right, const char* name) {
    if (!includes(rights, right)) return;
    if (!text.empty()) text += ',';
    text += name;
  };
  add(Rights::kRead, "read");
  add(Rights::kWrite, "write");
  add(Rights::kAtomic, "atomic");
  return text.empty() ? "none" : text;
}

namespace {

/// The operation names the wrong part, so that the remedy of the error can say what is expected
/// there.
Error wrong(Operation part, std::string_view text) {
  return Error{Code::kInvalidArgument, part}.with_subject(text.empty() ? "(nothing)" : text);
}

/// The zone of an IPv6 address: percent-encoded after "%25", or unchanged after "%". Empty:
/// neither. Source: RFC 6874, section 2.
std::string zone_of(std::string_view written) {
  constexpr std::string_view kPercent = "25";
  const auto is_of_a_zone = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
  };
  const bool encoded = written.starts_with(kPercent);
  if (encoded) written.remove_prefix(kPercent.size());
  std::string zone;
  while (!written.empty()) {
    char c = written.front();
    std::size_t length_bytes = 1;
    if (encoded && c == '%') {
      unsigned value = 0;
      const std::string_view digits = written.substr(1, 2);
      const char* const end = digits.data() + digits.size();
      const auto parsed = std::from_chars(digits.data(), end, value, 16);
      if (digits.size() != 2 || parsed.ec != std::errc{} || parsed.ptr != end) return {};
      c = static_cast<char>(value);
      length_bytes = 3;
    }
    if (!is_of_a_zone(c)) return {};
    zone += c;
    written.remove_prefix(length_bytes);
  }
  return zone;
}

/// Splits "host", "host:port", "[v6]" and "[v6]:port".
Status parse_authority(std::string_view authority, Uri& uri) {
  const auto parts = detail::split_host_port(authority);
  if (!parts) return wrong("URI host", authority);
  uri.host = parts->host;
  if (parts->in_brackets) {
    const std::string_view address = parts->host;
    const std::size_t percent = address.find('%');
    uri.host = address.substr(0, percent);
    if (percent != std::string_view::npos) {
      const std::string zone = zone_of(address.substr(percent + 1));
      if (zone.empty()) return wrong("URI host", address);
      uri.host.append("%").append(zone);
    }
  }
  // Brackets enclose an IPv6 address, and never stand within a name: remora://[[]
  const auto is_of_no_host = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '@' || c == '[' || c == ']';
  };
  if (uri.host.empty() || std::any_of(uri.host.begin(), uri.host.end(), is_of_no_host))
    return wrong("URI host", uri.host);
  if (!parts->has_port) return {};
  const std::string_view port = parts->port;
  const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), uri.port);
  if (failure != std::errc{} || end != port.data() + port.size() || uri.port == 0)
    return wrong("URI port", port);
  return {};
}

/// `item`: "NAME=VALUE", with a known name.
Status parse_rdma_setting(std::string_view item, config::RdmaSettings& settings) {
  const std::string_view name = item.substr(0, item.find('='));
  const std::string_view value = item.substr(std::min(item.size(), name.size() + 1));
  config::RdmaSettings one;
  if (!config::set_rdma_setting(one, name, value)) return wrong("URI setting of rdma", item);
  // The setting has a value already: adding the second one changes nothing.
  const config::RdmaSettings both = config::with_defaults(settings, one);
  if (both == settings) return wrong("URI option", "a second " + std::string{item});
  settings = both;
  return {};
}

Status parse_query(std::string_view query, Uri& uri) {
  bool has_transport = false;
  const auto twice = [](std::string_view item) {
    return wrong("URI option", "a second " + std::string{item});
  };
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    constexpr std::string_view kTransport = "transport=";
    if (item == "crc=payload") {
      if (uri.payload_crc) return twice(item);
      uri.payload_crc = true;
      continue;
    }
    if (const std::string_view name = item.substr(0, item.find('='));
        config::is_rdma_setting(name)) {
      if (auto status = parse_rdma_setting(item, uri.rdma); !status) return status;
      continue;
    }
    constexpr std::string_view kRails = "rails=";
    if (item.starts_with(kRails)) {
      if (!uri.rails.empty()) return twice(item);
      uri.rails = item.substr(kRails.size());
      if (!transport::RailChoice::parse(uri.rails)) return wrong("URI setting of rdma", item);
      continue;
    }
    if (!item.starts_with(kTransport)) return wrong("URI option", item);
    if (std::exchange(has_transport, true)) return twice(item);
    const std::string_view value = item.substr(kTransport.size());
    if (value == "rdma")
      uri.transport = TransportKind::kRdma;
    else if (value == "shm")
      uri.transport = TransportKind::kShm;
    else if (value == "tcp")
      uri.transport = TransportKind::kTcp;
    else if (value == "auto")
      uri.transport = TransportKind::kAuto;
    else
      return Error{Code::kUnsupported, "URI transport"}.with_subject(value);
  }
  const bool may_be_rdma =
      uri.transport == TransportKind::kRdma || uri.transport == TransportKind::kAuto;
  if (uri.rdma != config::RdmaSettings{} && !may_be_rdma)
    return Error{Code::kUnsupported, "URI option"}.with_subject(to_string(uri.rdma));
  if (!uri.rails.empty() && !may_be_rdma)
    return Error{Code::kUnsupported, "URI option"}.with_subject("rails=" + uri.rails);
  if (uri.payload_crc && uri.transport != TransportKind::kTcp)
    return Error{Code::kUnsupported, "URI option"}.with_subject("crc=payload");
  return {};
}

}  // namespace

Result<Uri> Uri::parse(std::string_view text) {
  constexpr std::string_view kScheme = "remora://";
  if (text.size() < kScheme.size() ||
      ::strncasecmp(text.data(), kScheme.data(), kScheme.size()) != 0)
    return wrong("URI scheme", text);
  std::string_view rest = text.substr(kScheme.size());
  Uri uri;
  if (const std::size_t question = rest.find('?'); question != std::string_view::npos) {
    if (auto status = parse_query(rest.substr(question + 1), uri); !status) return status.error();
    rest = rest.substr(0, question);
  }
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    uri.region = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (!uri.region.empty() && !config::is_region_name(uri.region))
      return wrong("URI region", uri.region);
  }
  if (auto status = parse_authority(rest, uri); !status) return status.error();
  return uri;
}

std::string Uri::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  // Built by appending: GCC 12 warns of overlap in operator+(const char*, std::string&&) at -O3.
  std::string text = v6 ? "remora://[" : "remora://";
  const std::size_t percent = v6 ? host.find('%') : std::string::npos;
  text.append(host, 0, percent);
  if (percent != std::string::npos) text.append("%25").append(host, percent + 1);
  if (v6) text += "]";
  if (port != kDefaultPort) text += ":" + std::to_string(port);
  if (!region.empty()) text += "/" + region;
  if (transport != TransportKind::kAuto) text += "?transport=" + std::string{to_string(transport)};
  if (payload_crc) text += "&crc=payload";
  if (const std::string settings = config::to_string(rdma, "&"); !settings.empty())
    text.append(transport == TransportKind::kAuto ? "?" : "&").append(settings);
  if (!rails.empty())
    text.append(text.find('?') == std::string::npos ? "?rails=" : "&rails=").append(rails);
  return text;
}

std::string Uri::server() const { return detail::join_host_port(host, port); }

}  // namespace remora
