#include <algorithm>
#include <charconv>
#include <optional>

#include <remora/config/server_config.h>
#include <remora/host_port.h>
#include <remora/volume/uri.h>

namespace remora::volume {
namespace {

constexpr std::string_view kEtcdScheme = "remora+etcd://";
constexpr std::string_view kFileScheme = "remora+file://";
constexpr std::string_view kFileEnding = ".json";

Error wrong(Operation part, std::string_view text) {
  return Error{Code::kInvalidArgument, part}.with_subject(text);
}

/// A scheme is case-insensitive.
bool begins_with(std::string_view text, std::string_view scheme) noexcept {
  return text.size() >= scheme.size() &&
         std::equal(scheme.begin(), scheme.end(), text.begin(), [](char wanted, char found) {
           return wanted == (found >= 'A' && found <= 'Z' ? char(found - 'A' + 'a') : found);
         });
}

/// No control character, blank, or character with a meaning in a URL.
bool is_clean(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char each) {
    return static_cast<unsigned char>(each) > ' ' && each != '\x7f' &&
           std::string_view{"/@?#\"\\"}.find(each) == std::string_view::npos;
  });
}

/// "http://HOST:PORT" of one endpoint.
Result<std::string> parse_endpoint(std::string_view text, std::string_view scheme) {
  const auto parts = remora::detail::split_host_port(text);
  if (!parts || parts->host.empty() || !is_clean(text) ||
      parts->host.find_first_of("[]") != std::string_view::npos)
    return wrong("cluster URI endpoint", text);
  std::uint16_t port = kEtcdPort;
  if (parts->has_port) {
    const char* const end = parts->port.data() + parts->port.size();
    const auto [stop, fault] = std::from_chars(parts->port.data(), end, port);
    if (fault != std::errc{} || stop != end || port == 0)
      return wrong("cluster URI endpoint", text);
  }
  return std::string{scheme} + remora::detail::join_host_port(parts->host, port);
}

Status parse_endpoints(std::string_view text, std::string_view scheme, VolumeUri& uri) {
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    auto endpoint = parse_endpoint(rest.substr(0, comma), scheme);
    if (!endpoint) return endpoint.error();
    uri.endpoints.push_back(std::move(*endpoint));
    if (uri.endpoints.size() > kEndpointsMax)
      return Error{Code::kLimitExceeded, "cluster URI endpoint"}.with_subject(text).with_limit(
          uri.endpoints.size(), kEndpointsMax);
    if (comma == std::string_view::npos) return ok_status();
    rest.remove_prefix(comma + 1);
  }
}

Status check_names(const VolumeUri& uri) {
  if (!config::is_region_name(uri.cluster)) return wrong("cluster URI cluster", uri.cluster);
  if (!uri.volume.empty() && !config::is_region_name(uri.volume))
    return wrong("cluster URI volume", uri.volume);
  return ok_status();
}

Result<VolumeUri> parse_etcd(std::string_view rest) {
  VolumeUri uri;
  std::string_view scheme = "http://";
  if (const std::size_t query = rest.find('?'); query != std::string_view::npos) {
    const std::string_view option = rest.substr(query + 1);
    if (option == "tls=on")
      scheme = "https://";
    else if (option != "tls=off")
      return wrong("cluster URI option", option);
    rest = rest.substr(0, query);
  }
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return wrong("cluster URI cluster", rest);
  if (const Status parsed = parse_endpoints(rest.substr(0, slash), scheme, uri); !parsed)
    return parsed.error();
  std::string_view names = rest.substr(slash + 1);
  const std::size_t second = names.find('/');
  uri.cluster = names.substr(0, second);
  if (second != std::string_view::npos) {
    uri.volume = names.substr(second + 1);
    if (uri.volume.empty()) return wrong("cluster URI volume", rest);
  }
  if (const Status checked = check_names(uri); !checked) return checked.error();
  return uri;
}

Result<VolumeUri> parse_file(std::string_view rest) {
  VolumeUri uri;
  uri.store = StoreKind::kFile;
  uri.cluster = kFileCluster;
  if (!rest.starts_with('/')) return wrong("cluster URI path", rest);
  std::string_view path = rest;
  if (!path.ends_with(kFileEnding)) {
    const std::size_t slash = path.rfind('/');
    uri.volume = path.substr(slash + 1);
    path = path.substr(0, slash);
  }
  const std::size_t name = path.rfind('/') + 1;
  if (!path.ends_with(kFileEnding) || path.size() - name <= kFileEnding.size())
    return wrong("cluster URI path", rest);
  uri.path = path;
  if (const Status checked = check_names(uri); !checked) return checked.error();
  return uri;
}

}  // namespace

bool is_volume_uri(std::string_view text) noexcept {
  return begins_with(text, kEtcdScheme) || begins_with(text, kFileScheme);
}

Result<VolumeUri> parse_uri(std::string_view text) {
  if (begins_with(text, kEtcdScheme)) return parse_etcd(text.substr(kEtcdScheme.size()));
  if (begins_with(text, kFileScheme)) return parse_file(text.substr(kFileScheme.size()));
  return wrong("cluster URI scheme", text);
}

Result<VolumeUri> parse_volume_uri(std::string_view text) {
  auto uri = parse_uri(text);
  if (uri && uri->volume.empty()) return wrong("cluster URI volume", text);
  return uri;
}

std::string VolumeUri::text() const {
  std::string text;
  if (store == StoreKind::kFile) {
    text.append(kFileScheme).append(path);
    return volume.empty() ? text : text.append("/").append(volume);
  }
  text.append(kEtcdScheme);
  bool tls = false;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const std::string_view endpoint = endpoints[i];
    tls = tls || endpoint.starts_with("https://");
    text.append(i == 0 ? "" : ",").append(endpoint.substr(endpoint.find("://") + 3));
  }
  text.append("/").append(cluster);
  if (!volume.empty()) text.append("/").append(volume);
  return tls ? text.append("?tls=on") : text;
}

}  // namespace remora::volume
